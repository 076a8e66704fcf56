package proxy

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keysFile writes a file with the keys of clients: pairs of a key and a salt.
func keysFile(t *testing.T, path string, pairs ...string) string {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "keys.yaml")
	}
	text := "keys:\n"
	for i := 0; i+1 < len(pairs); i += 2 {
		text += fmt.Sprintf("  - {sha256: %x, salt: %q}\n", sha256.Sum256([]byte(pairs[i])), pairs[i+1])
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A request gets the salt of its key, whatever the client wrote, at both engines; a request without a listed key reaches
// no engine.
func TestSaltFollowsTheKey(t *testing.T) {
	prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("data: answer\n\n"))
	keys := keysFile(t, "", "key-a", "salt-of-a", "key-b", "salt-of-b", "key-c", "")
	p := startProxy(t, pairConfig(prefill, decode), func(c *Config) { c.APIKeys = keys })
	chosen := `{"model":"m","prompt":"Once","max_tokens":5,"cache_salt":"salt-of-b","cache_\u0073alt":"salt-of-b"}`
	for _, c := range []struct {
		header, value string
		salt          any
	}{
		{"Authorization", "Bearer key-a", "salt-of-a"}, {"Authorization", "Bearer key-b", "salt-of-b"},
		{"Authorization", "Bearer key-c", nil}, {"X-Api-Key", "key-a", "salt-of-a"},
	} {
		for _, body := range []string{chosen, completion} {
			wantAnswer(t, postTo(t, p, "/v1/completions", body, c.header, c.value), http.StatusOK, "data: answer")
			for what, e := range map[string]*engine{"prefill": prefill, "decode": decode} {
				all := e.allReceived()
				if last := all[len(all)-1]; last.body["cache_salt"] != c.salt {
					t.Errorf("%s %s: %s gets the salt %v, want %v", c.header, c.value, what, last.body["cache_salt"], c.salt)
				}
			}
		}
	}
	before := len(prefill.allReceived()) + len(decode.allReceived())
	for _, headers := range [][]string{nil, {"Authorization", "Bearer key-x"}, {"Authorization", "Basic key-a"}, {"Authorization", "key-a"}} {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize"} {
			res := postTo(t, p, path, completion, headers...)
			wantAnswer(t, res, http.StatusUnauthorized, "missing or unknown")
		}
	}
	if res, err := newClient(t).Get("http://" + p.Addr().String() + "/v1/models"); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a query without a key: %v, %v", res, err)
	} else {
		_ = res.Body.Close()
	}
	wantAnswer(t, postTo(t, p, "/v1/messages", completion, "X-Api-Key", "key-a"), http.StatusBadRequest, "take no cache_salt")
	if after := len(prefill.allReceived()) + len(decode.allReceived()); after != before {
		t.Errorf("%d refused requests reached an engine", after-before)
	}
	wantAnswer(t, postTo(t, p, "/v1/messages", completion, "X-Api-Key", "key-c"), http.StatusOK, "data: answer")
}

// Keys that are taken from the file are refused, and new ones served, without a restart. A file that cannot be used changes
// nothing.
func TestKeysAreReadAgain(t *testing.T) {
	prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("data: answer\n\n"))
	keys := keysFile(t, "", "key-a", "salt-of-a")
	p := startProxy(t, pairConfig(prefill, decode), func(c *Config) { c.APIKeys = keys })
	want := func(key string, status int) {
		t.Helper()
		text := "data: answer"
		if status != http.StatusOK {
			text = "missing or unknown"
		}
		wantAnswer(t, postTo(t, p, "/v1/completions", completion, "Authorization", "Bearer "+key), status, text)
	}
	want("key-a", http.StatusOK)
	keysFile(t, keys, "key-b", "salt-of-b")
	p.ReloadFiles()
	want("key-a", http.StatusUnauthorized)
	want("key-b", http.StatusOK)
	for _, text := range []string{"", "keys: [", "keys: []", "keys: [{sha256: abc}]"} {
		if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p.ReloadFiles()
		want("key-b", http.StatusOK)
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	p.ReloadFiles()
	want("key-b", http.StatusOK)
}

// Each error of the file names the entry and what to write, and no salt.
func TestInvalidKeys(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for text, want := range map[string]string{
		"": "is empty", "keys: []": "has no keys", "kees: []": "not the expected YAML", "keys: [{sha256: x, salt: secret}]": "keys[0].sha256",
		"keys: [{sha256: " + digest + "ab}]":                                            "keys[0].sha256",
		"keys: [{sha256: " + digest + "}, {sha256: " + digest + "}]":                    "keys[1] is listed twice",
		"keys: [{sha256: " + digest + ", salt: " + strings.Repeat("secret", 200) + "}]": "keys[0].salt has",
		"keys: [{sha256: " + digest + ", salt: [secret]}]":                              "not the expected YAML",
	} {
		if _, err := parseKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: %v; want %q", text, err, want)
		}
	}
	if _, err := openKeys(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "--api-keys") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// With a key of its own the proxy shows engines that key, and never a client's.
func TestEngineKey(t *testing.T) {
	prefill, decode := newEngine(t, answerText(sentAnswer)), newEngine(t, answerText("data: answer\n\n"))
	file := filepath.Join(t.TempDir(), "engine-key")
	if err := os.WriteFile(file, []byte("engine-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := keysFile(t, "", "key-a", "")
	p := startProxy(t, pairConfig(prefill, decode), func(c *Config) { c.APIKeys, c.EngineKey = keys, file })
	wantAnswer(t, postTo(t, p, "/v1/completions", completion, "Authorization", "Bearer key-a"), http.StatusOK, "data: answer")
	for _, e := range []*engine{prefill, decode} {
		for _, r := range e.allReceived() {
			if got := r.header["Authorization"]; len(got) != 1 || got[0] != "Bearer engine-secret" {
				t.Errorf("an engine gets the key %q", got)
			}
		}
	}
	for _, text := range []string{"", "\n", "two keys"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readEngineKey(file); err == nil || !strings.Contains(err.Error(), "--engine-key") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

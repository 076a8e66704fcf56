package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"
)

// apiKeys are the keys by which clients are known, from a file that is read again when it changes. A nil *apiKeys lets
// every client in.
type apiKeys struct {
	path string
	log  *slog.Logger

	mu        sync.Mutex
	byDigest  map[[sha256.Size]byte]apiKey
	content   [sha256.Size]byte // digest of the file that is in force
	checkedAt time.Time
	lastError string
}

// An apiKey is what a key of a client says about its requests.
type apiKey struct {
	salt string // the cache_salt of the requests; empty: they have none
}

const (
	keysRecheck  = 10 * time.Second
	keysMaxBytes = 4 << 20
	keysMax      = 1 << 16
	saltMaxBytes = 1 << 10
)

// openKeys reads a file of keys.
func openKeys(path string, log *slog.Logger) (*apiKeys, error) {
	k := &apiKeys{path: path, log: log, checkedAt: time.Now()}
	data, err := k.readFile()
	if err != nil {
		return nil, err
	}
	k.content = sha256.Sum256(data)
	k.byDigest, err = parseKeys(data)
	if err != nil {
		return nil, fmt.Errorf("--api-keys %s: %w", path, err)
	}
	return k, nil
}

func (k *apiKeys) readFile() ([]byte, error) {
	f, err := os.Open(k.path)
	if err != nil {
		return nil, fmt.Errorf("--api-keys: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, keysMaxBytes+1))
	if err == nil && len(data) > keysMaxBytes {
		err = fmt.Errorf("%s has more than %d bytes", k.path, keysMaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("--api-keys: %w", err)
	}
	return data, nil
}

// parseKeys parses a file of keys. Errors name entries by their position, because salts are secrets.
func parseKeys(data []byte) (map[[sha256.Size]byte]apiKey, error) {
	var file struct {
		Keys []struct {
			SHA256 string `yaml:"sha256"`
			Salt   string `yaml:"salt"`
		} `yaml:"keys"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&file); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty; list at least one key below `keys`")
	} else if err != nil {
		return nil, errors.New("the file is not the expected YAML: a list `keys` of `sha256` and `salt`")
	}
	switch n := len(file.Keys); {
	case n == 0:
		return nil, errors.New("the file has no keys, so every client would be refused; list at least one below `keys`")
	case n > keysMax:
		return nil, fmt.Errorf("the file has %d keys; at most %d are allowed", n, keysMax)
	}
	all := make(map[[sha256.Size]byte]apiKey, len(file.Keys))
	for i, x := range file.Keys {
		var digest [sha256.Size]byte
		if n, err := hex.Decode(digest[:], []byte(strings.ToLower(x.SHA256))[:min(len(x.SHA256), 2*len(digest))]); err != nil ||
			n != len(digest) || len(x.SHA256) != 2*len(digest) {
			return nil, fmt.Errorf("keys[%d].sha256 is not the 64 hex digits of a SHA-256: write what `printf %%s \"$KEY\" | sha256sum` prints", i)
		}
		if len(x.Salt) > saltMaxBytes {
			return nil, fmt.Errorf("keys[%d].salt has %d bytes; at most %d are allowed", i, len(x.Salt), saltMaxBytes)
		}
		if _, twice := all[digest]; twice {
			return nil, fmt.Errorf("keys[%d] is listed twice; remove one of the entries", i)
		}
		all[digest] = apiKey{salt: x.Salt}
	}
	return all, nil
}

// find returns what a key says, and reads the file again if that was not done for a while. If the file cannot be used,
// the former keys stay in force, and the error is logged once.
func (k *apiKeys) find(key string) (apiKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.checkedAt) >= keysRecheck {
		k.checkedAt = time.Now()
		k.reloadFile()
	}
	found, ok := k.byDigest[sha256.Sum256([]byte(key))]
	return found, ok
}

func (k *apiKeys) reloadFile() {
	data, err := k.readFile()
	if err == nil {
		content := sha256.Sum256(data)
		if content == k.content {
			k.lastError = ""
			return
		}
		var fresh map[[sha256.Size]byte]apiKey
		if fresh, err = parseKeys(data); err == nil {
			k.byDigest, k.content, k.lastError = fresh, content, ""
			k.log.Info("the keys of clients have changed and are in force", "file", k.path, "keys", len(fresh))
			return
		}
	}
	if err.Error() != k.lastError {
		k.lastError = err.Error()
		k.log.Error("the keys of clients cannot be read again, and the former ones stay in force", "file", k.path, "err", err)
	}
}

// Reload makes the next request read the file again.
func (k *apiKeys) Reload() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checkedAt = time.Time{}
}

// keyOf returns the key of a request, in the header of OpenAI's or of Anthropic's API.
func keyOf(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return r.Header.Get("X-Api-Key")
}

// admitClient returns what the key of a request says. If the request has no key that is listed, admitClient answers it,
// and reports false. Without keys every client is admitted.
func (p *Proxy) admitClient(w http.ResponseWriter, r *http.Request) (apiKey, bool) {
	if p.keys == nil {
		return apiKey{}, true
	}
	key, ok := p.keys.find(keyOf(r))
	if !ok {
		closeUnread(w)
		w.Header().Set("WWW-Authenticate", "Bearer")
		p.refuseRequest(w, http.StatusUnauthorized, "the key of this request is missing or unknown: send the header Authorization: Bearer KEY "+
			"with a key that the operator of this proxy has listed")
	}
	return key, ok
}

// requireKey lets only clients with a key through to a handler.
func (p *Proxy) requireKey(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := p.admitClient(w, r); ok {
			handle(w, r)
		}
	}
}

// saltField is the field of a request that separates its KV cache from the caches of other salts.
const saltField = "cache_salt"

// setSalt gives a request the salt of the client's key, whatever the client wrote. It fails for a salt at an endpoint
// whose engines take none, because the request would use the cache of requests without a salt.
func (r request) setSalt(key apiKey) error {
	delete(r.fields, saltField)
	if key.salt == "" {
		return nil
	}
	if r.endpoint == messages {
		return fmt.Errorf("engines take no %s at %s, which the key of this request needs: use another endpoint", saltField, messages.path)
	}
	salt, err := json.Marshal(key.salt)
	r.fields[saltField] = salt
	return err
}

// readEngineKey reads the key that the proxy shows to engines; empty if there is no file.
func readEngineKey(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--engine-key: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("--engine-key %s does not hold one key: write the key alone into the file", path)
	}
	return key, nil
}

package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// issue writes a certificate for localhost and the authority's certificate into a folder.
func issue(t *testing.T, dir string) (ca *x509.CertPool) {
	t.Helper()
	a, err := authority.New(time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteFolder(dir, "localhost", nil); err != nil {
		t.Fatal(err)
	}
	ca = x509.NewCertPool()
	ca.AppendCertsFromPEM(a.CertPEM())
	return ca
}

// Clients connect by HTTPS, the engines have https addresses, and the next connection sees a renewed certificate.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	former := issue(t, dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	engines := tls.Config{}
	pair, err := tls.LoadX509KeyPair(in(authority.CertFile), in(authority.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	engines.Certificates = []tls.Certificate{pair}
	prefill := newSecuredEngine(t, &engines, answerText(sentAnswer))
	decode := newSecuredEngine(t, &engines, answerText("data: answer\n\n"))
	engineCA := filepath.Join(dir, "engines.crt")
	text, err := os.ReadFile(in(authority.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(engineCA, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, pairConfig(prefill, decode), func(c *Config) {
		c.Cert, c.Key, c.EngineCA = in(authority.CertFile), in(authority.KeyFile), engineCA
		c.Log = slog.New(slog.DiscardHandler)
	})
	ask := func(roots *x509.CertPool) (*http.Response, error) {
		client := &http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: roots}}}
		_, port, err := net.SplitHostPort(p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return client.Post("https://localhost:"+port+"/v1/completions", jsonType, strings.NewReader(completion))
	}
	res, err := ask(former)
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, res, http.StatusOK, "data: answer")
	_ = res.Body.Close()
	if got := p.Stats(); got != (Stats{Requests: 1, Sent: 1}) {
		t.Errorf("counted %+v", got)
	}
	present := issue(t, dir)
	p.ReloadFiles()
	if _, err := ask(former); err == nil {
		t.Error("the former certificate is still shown")
	}
	if res, err = ask(present); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, res, http.StatusOK, "data: answer")
	_ = res.Body.Close()
	// Files that cannot be used leave the former certificate in force.
	if err := os.WriteFile(in(authority.KeyFile), []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ReloadFiles()
	if res, err = ask(present); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, res, http.StatusOK, "data: answer")
	_ = res.Body.Close()
}

// A wrong file is named in the error.
func TestTLSErrors(t *testing.T) {
	dir := t.TempDir()
	issue(t, dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	engine := newEngine(t, answerText(sentAnswer))
	for want, set := range map[string]func(*Config){
		"--key names no file":  func(c *Config) { c.Cert = in(authority.CertFile) },
		"--cert names no file": func(c *Config) { c.Key = in(authority.KeyFile) },
		"--cert and --key":     func(c *Config) { c.Cert, c.Key = in(authority.CertFile), in(authority.CAFile) },
		"--engine-ca: open":    func(c *Config) { c.EngineCA = in("none") },
		"has no certificate":   func(c *Config) { c.EngineCA = in(authority.KeyFile) },
	} {
		c := Defaults()
		c.Address, c.Decodes = "127.0.0.1:0", pairConfig(engine, engine).Decodes
		set(&c)
		if p, err := Listen(c); err == nil || !strings.Contains(err.Error(), want) {
			if p != nil {
				_ = p.Close(t.Context())
			}
			t.Errorf("the error is %v; want %q", err, want)
		}
	}
}

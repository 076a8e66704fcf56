package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if decode := os.Getenv(fewFilesEnv); decode != "" {
		serveWithFewFiles(decode)
		return
	}
	goleak.VerifyTestMain(m)
}

// testTimeout is the timeout of every wait, so long that a slow machine does not fail the tests.
const testTimeout = time.Minute

// An received is a request that an engine received.
type received struct {
	path   string
	header http.Header
	body   map[string]any
}

// An engine is an HTTP server that plays a vLLM engine and records its requests.
type engine struct {
	*httptest.Server
	url *url.URL

	mu       sync.Mutex
	received []received
}

// newEngine starts an engine that answers by a handler; the body has been read already.
func newEngine(t *testing.T, answer http.HandlerFunc) *engine {
	t.Helper()
	return newSecuredEngine(t, nil, answer)
}

// newSecuredEngine starts an engine that serves by TLS if config is set, at the name localhost.
func newSecuredEngine(t *testing.T, config *tls.Config, answer http.HandlerFunc) *engine {
	t.Helper()
	e := &engine{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := received{path: r.URL.Path, header: r.Header.Clone()}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if len(body) > 0 {
			if err := json.Unmarshal(body, &a.body); err != nil {
				t.Errorf("an engine was sent %q: %v", body, err)
			}
		}
		e.mu.Lock()
		e.received = append(e.received, a)
		e.mu.Unlock()
		answer(w, r)
	}))
	if e.TLS = config; config != nil {
		e.StartTLS()
	} else {
		e.Start()
	}
	t.Cleanup(e.Close)
	address := e.URL
	if config != nil {
		address = strings.Replace(address, "127.0.0.1", "localhost", 1)
	}
	var err error
	if e.url, err = ParseEngine(address); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *engine) allReceived() []received {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received
}

// countCompletions returns the number of completion requests.
func (e *engine) countCompletions() (n int) {
	for _, a := range e.allReceived() {
		if a.path == "/v1/completions" {
			n++
		}
	}
	return n
}

// asDecode returns the engine as a decode engine with agents that receive at host.
func (e *engine) asDecode(host string) DecodeEngine {
	return DecodeEngine{URL: e.url, Host: host, InitPorts: []uint16{7300, 7301}, AllocPorts: []uint16{7400, 7401}}
}

// answerText answers with a text.
func answerText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// answerStatus answers with a status.
func answerStatus(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// sentAnswer is the answer of a prefill engine that has sent a cache.
const sentAnswer = `{"choices": [{"text": "x"}], "kv_transfer_params": {"do_remote_prefill": true, "remote_tokens": 4,
	"disagg_spec": {"req_id": "as the engine has it"}}}`

// startProxy starts a proxy with the limits of a test.
func startProxy(t *testing.T, c Config, limits ...func(*Config)) *Proxy {
	t.Helper()
	with := Defaults()
	with.Address, with.Prefills, with.Decodes = "127.0.0.1:0", c.Prefills, c.Decodes
	with.MaxConnections, with.MaxRequests = 64, 16
	with.ReadTimeout, with.WriteTimeout, with.PrefillTimeout = testTimeout, testTimeout, testTimeout
	for _, limit := range limits {
		limit(&with)
	}
	p, err := Listen(with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(t.Context()) }) // The context has ended: nothing is waited for.
	return p
}

const jsonType = "application/json"

func pairConfig(prefill, decode *engine) Config {
	return Config{Prefills: []*url.URL{prefill.url}, Decodes: []DecodeEngine{decode.asDecode("10.0.0.2")}}
}

// newClient returns a client of the proxy, with separate connections.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testTimeout}
}

func postTo(t *testing.T, p *Proxy, path, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+p.Addr().String()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", jsonType)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// wantAnswer reads a complete answer and compares it.
func wantAnswer(t *testing.T, res *http.Response, status int, part string) {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || !strings.Contains(string(text), part) {
		t.Errorf("got %d %q, %v; want %d %q", res.StatusCode, text, err, status, part)
	}
}

const completion = `{"model": "m", "prompt": "Once", "max_tokens": 9, "min_tokens": 3, "stream": true,
	"stream_options": {"include_usage": true}, "logprobs": 2}`

func parseObject(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

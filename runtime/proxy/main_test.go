package proxy

import (
	"context"
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

// patience is the timeout of every wait, so long that a slow machine does not fail the tests.
const patience = time.Minute

// An asked is a request that an engine received.
type asked struct {
	path   string
	header http.Header
	body   map[string]any
}

// An engine is an HTTP server that plays a vLLM engine and records its requests.
type engine struct {
	*httptest.Server
	url *url.URL

	mu    sync.Mutex
	asked []asked
}

// newEngine starts an engine that answers by a handler; the body has been read already.
func newEngine(t *testing.T, answer http.HandlerFunc) *engine {
	t.Helper()
	e := &engine{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := asked{path: r.URL.Path, header: r.Header.Clone()}
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
		e.asked = append(e.asked, a)
		e.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(e.Close)
	var err error
	if e.url, err = ParseEngine(e.URL); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *engine) all() []asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// completions returns the number of completion requests.
func (e *engine) completions() (n int) {
	for _, a := range e.all() {
		if a.path == "/v1/completions" {
			n++
		}
	}
	return n
}

// at returns the engine as a decode engine with agents that receive at host.
func (e *engine) at(host string) Decode {
	return Decode{URL: e.url, Host: host, Init: []uint16{7300, 7301}, Alloc: []uint16{7400, 7401}}
}

// says answers with a text.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// fails answers with a status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// sent is the answer of a prefill engine that has sent a cache.
const sent = `{"choices": [{"text": "x"}], "kv_transfer_params": {"do_remote_prefill": true, "remote_tokens": 4,
	"disagg_spec": {"req_id": "as the engine has it"}}}`

// start starts a proxy with the limits of a test.
func start(t *testing.T, c Config, limits ...func(*Config)) *Proxy {
	t.Helper()
	with := Defaults()
	with.Address, with.Prefills, with.Decodes = "127.0.0.1:0", c.Prefills, c.Decodes
	with.Connections, with.Requests = 64, 16
	with.ReadTimeout, with.WriteTimeout, with.PrefillTimeout = patience, patience, patience
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

func pair(prefill, decode *engine) Config {
	return Config{Prefills: []*url.URL{prefill.url}, Decodes: []Decode{decode.at("10.0.0.2")}}
}

// to returns a client of the proxy, with separate connections.
func to(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func post(t *testing.T, p *Proxy, path, body string, headers ...string) *http.Response {
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
	res, err := to(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// want reads a complete answer and compares it.
func want(t *testing.T, res *http.Response, status int, part string) {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || !strings.Contains(string(text), part) {
		t.Errorf("got %d %q, %v; want %d %q", res.StatusCode, text, err, status, part)
	}
}

const completion = `{"model": "m", "prompt": "Once", "max_tokens": 9, "min_tokens": 3, "stream": true,
	"stream_options": {"include_usage": true}, "logprobs": 2}`

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A tracedProcess is a kvferry process of TestTraceOverProcesses.
type tracedProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	calls sync.Mutex
	log   bytes.Buffer
}

func startTraced(t *testing.T, args ...string) *tracedProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &tracedProcess{cmd: exec.Command(self, args...)}
	stdin, errIn := p.cmd.StdinPipe()
	stdout, errOut := p.cmd.StdoutPipe()
	p.cmd.Stderr = &p.log
	if err := errors.Join(errIn, errOut, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.stdin, p.lines = stdin, bufio.NewScanner(stdout)
	if !p.lines.Scan() {
		p.stop(t)
		t.Fatalf("%v says nothing: %s", args, &p.log)
	}
	return p
}

// stop ends the process, which exports its last spans.
func (p *tracedProcess) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("a process ends with %v: %s", err, &p.log)
	}
}

// call has a node carry out a request.
func (p *tracedProcess) call(req *agent.Request) error {
	p.calls.Lock()
	defer p.calls.Unlock()
	if err := json.NewEncoder(p.stdin).Encode(req); err != nil {
		return err
	}
	var resp agent.Response
	if !p.lines.Scan() {
		return errors.New("the node has ended")
	}
	if err := json.Unmarshal(p.lines.Bytes(), &resp); err != nil {
		return err
	}
	if resp.Code != "ok" || resp.Bytes == 0 || resp.Wrong != 0 {
		return fmt.Errorf("%s: %+v", req.Op, resp)
	}
	return nil
}

// tracedEngine serves an engine whose KV cache a node moves.
func tracedEngine(t *testing.T, node *tracedProcess, req agent.Request) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return // a health check
		}
		req := req
		req.Parent = r.Header.Get("Traceparent")
		if err := node.call(&req); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, `{"choices": [], "kv_transfer_params": {"disagg_spec": {"req_id": "r"}}}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// freePort returns a port that no process listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// The proxy, the sender and the receiver are processes of their own, and a request through them is one trace.
func TestTraceOverProcesses(t *testing.T) {
	var mu sync.Mutex
	spans := map[string]*tracepb.Span{}
	services := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var all tracepb.TracesData
		if err := errors.Join(err, proto.Unmarshal(body, &all)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, from := range all.GetResourceSpans() {
			for _, scope := range from.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					if spans[s.GetName()] != nil {
						t.Errorf("two spans are called %s", s.GetName())
					}
					spans[s.GetName()] = s
					for _, a := range from.GetResource().GetAttributes() {
						if a.GetKey() == "service.name" {
							services[s.GetName()] = a.GetValue().GetStringValue()
						}
					}
				}
			}
		}
	}))
	defer collector.Close()
	peer := agent.Peer{Host: "127.0.0.1", InitPort: freePort(t), AllocPort: freePort(t)}
	node := func(role string, init, alloc uint16) *tracedProcess {
		file := filepath.Join(t.TempDir(), role+".yaml")
		text := fmt.Sprintf(`
enable_pd: true
pd_role: %s
pd_peer_host: 127.0.0.1
pd_peer_init_port: %d
pd_peer_alloc_port: %d
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  kvferry:
    link: {carry_bytes: 0}
    trace: {endpoint: "%s"}
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 64, dtype: half}
`, role, init, alloc, collector.URL)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return startTraced(t, "node", "--config", file, "--commands")
	}
	to := node("receiver", peer.InitPort, peer.AllocPort)
	from := node("sender", freePort(t), freePort(t))
	keys := []string{"m@1@0@a1@half", "m@1@0@a2@half"}
	prefill := tracedEngine(t, from, agent.Request{ID: 1, Op: "put", Peer: &peer, Request: "r", Keys: keys})
	decode := tracedEngine(t, to, agent.Request{ID: 1, Op: "get", Request: "r", Keys: keys, WaitMS: 20_000})
	p := startTraced(t, "proxy", "--listen", "127.0.0.1:0", "--trace-endpoint", collector.URL, "--prefill", prefill, "--decode",
		fmt.Sprintf("%s=127.0.0.1:%d:%d", decode, peer.InitPort, peer.AllocPort))
	var serving struct{ Address string }
	if err := json.Unmarshal(p.lines.Bytes(), &serving); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+serving.Address+"/v1/completions",
		strings.NewReader(`{"prompt": "x"}`))
	if err != nil {
		t.Fatal(err)
	}
	const trace, client = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+trace+"-"+client+"-01")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("the answer has status %d: %v", res.StatusCode, err)
	}
	_ = res.Body.Close()
	for _, process := range []*tracedProcess{p, from, to} {
		process.stop(t)
	}
	mu.Lock()
	defer mu.Unlock()
	const clocks = 1_000_000 // Each process compares its two clocks by itself.
	for name, c := range map[string]struct{ service, parent string }{
		"POST /v1/completions": {"kvferry-proxy", ""},
		"prefill":              {"kvferry-proxy", "POST /v1/completions"},
		"decode":               {"kvferry-proxy", "POST /v1/completions"},
		"kvferry.put":          {"kvferry-sender", "prefill"},
		"handshake":            {"kvferry-sender", "kvferry.put"},
		"allocation":           {"kvferry-sender", "kvferry.put"},
		"wire":                 {"kvferry-sender", "kvferry.put"},
		"kvferry.receive":      {"kvferry-receiver", "kvferry.put"},
		"land":                 {"kvferry-receiver", "kvferry.receive"},
		"kvferry.get":          {"kvferry-receiver", "decode"},
	} {
		s, above := spans[name], spans[c.parent]
		if s == nil || services[name] != c.service || hex.EncodeToString(s.GetTraceId()) != trace {
			t.Errorf("span %s of %s: %v", name, services[name], s)
			continue
		}
		if c.parent == "" {
			if hex.EncodeToString(s.GetParentSpanId()) != client {
				t.Errorf("span %s is below %x", name, s.GetParentSpanId())
			}
			continue
		}
		if above == nil || !bytes.Equal(s.GetParentSpanId(), above.GetSpanId()) ||
			s.GetStartTimeUnixNano()+clocks < above.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > above.GetEndTimeUnixNano()+clocks {
			t.Errorf("span %s does not lie in %s:\n%v\n%v", name, c.parent, s, above)
		}
	}
}

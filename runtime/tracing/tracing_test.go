package tracing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/internal/logtest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/proxy"
	"github.com/kvferry/kvferry/runtime/span"
	"github.com/kvferry/kvferry/runtime/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 20 * time.Second

var discard = slog.New(slog.DiscardHandler)

// A collector is an OTLP receiver that keeps what it gets.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []received
}

// received is a span with the service that sent it.
type received struct {
	service string
	*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var all tracepb.TracesData // the same fields as the request of the collector's service
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &all) != nil {
			t.Errorf("the collector got %s with %d bytes: %v", r.URL.Path, len(body), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, from := range all.GetResourceSpans() {
			service := ""
			for _, a := range from.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					service = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range from.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, received{service, s})
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans with a name.
func (c *collector) named(name string) (all []received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			all = append(all, s)
		}
	}
	return all
}

// one returns the one span with a name.
func (c *collector) one(t *testing.T, name string) received {
	t.Helper()
	all := c.named(name)
	if len(all) != 1 {
		t.Fatalf("%d spans are called %q, want 1", len(all), name)
	}
	return all[0]
}

func openTracer(t *testing.T, endpoint, service string, ratio float64) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.Open(tracing.Config{Endpoint: endpoint, Service: service, Ratio: ratio, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTracer(t, tracer) })
	return tracer
}

func closeTracer(t *testing.T, tracer *tracing.Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := tracer.Close(ctx); err != nil {
		t.Error(err)
	}
}

func openNode(t testing.TB, role string, options ...runtime.Option) *runtime.Node {
	t.Helper()
	return openNodeWith(t, role, "", options...)
}

// openNodeWith opens a node with another line of configuration.
func openNodeWith(t testing.TB, role, line string, options ...runtime.Option) *runtime.Node {
	t.Helper()
	cfg, err := config.Parse(role, []byte(`
enable_pd: true
pd_role: `+role+`
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config: {kvferry: {link: {carry_bytes: 0}, layout: {num_layers: 2, num_kv_heads: 1, head_size: 64, dtype: bfloat16}}}
`+line+"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	clear(cfg.InitPorts)
	clear(cfg.AllocPorts)
	n, err := runtime.Open(t.Context(), cfg, append([]runtime.Option{runtime.WithControl(zmq.Config{}.Opener()),
		runtime.WithPlane(shm.Name, shm.Open), runtime.WithLogger(discard)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func peerOf(n *runtime.Node) runtime.Peer {
	p := runtime.Peer{Host: "127.0.0.1"}
	for _, s := range n.Servers() {
		switch s.Channel { //nolint:exhaustive // Others are no part of the address.
		case effects.ChannelInit:
			p.InitPort = s.Addr.Port
		case effects.ChannelAlloc:
			p.AllocPort = s.Addr.Port
		}
	}
	return p
}

var chunk = []string{"m@1@0@c0ffee@bfloat16"}

// put reserves a page, and puts it under a span.
func put(ctx context.Context, from, to *runtime.Node, request string, parent effects.TraceContext) error {
	pages, err := from.Sender().Reserve(ctx, 1)
	if err != nil {
		return err
	}
	_, err = from.Sender().Put(ctx, runtime.Put{Peer: peerOf(to), Request: request, Keys: chunk, Pages: pages, Trace: parent})
	return errors.Join(err, pages.Release(ctx))
}

// get gets the chunk under a span, and releases it.
func get(ctx context.Context, at *runtime.Node, request string, parent effects.TraceContext) error {
	pages, err := at.Receiver().Get(ctx, runtime.Get{Request: request, Keys: chunk, Timeout: testTimeout, Trace: parent})
	if err != nil {
		return err
	}
	return pages.Release(ctx)
}

// newEngine serves an engine as vLLM's HTTP server does: the answer has the parameters of the cache.
func newEngine(t *testing.T, work func(ctx context.Context, request string, parent effects.TraceContext) error) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Params struct {
				Spec struct {
					Request string `json:"req_id"`
				} `json:"disagg_spec"`
			} `json:"kv_transfer_params"`
		}
		if r.Method != http.MethodPost {
			return // a health check
		}
		err := json.NewDecoder(r.Body).Decode(&body)
		if err == nil {
			err = work(r.Context(), body.Params.Spec.Request, span.ParseParent(r.Header.Get("Traceparent")))
		}
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{}, "kv_transfer_params": map[string]any{
			"do_remote_prefill": true, "remote_tokens": 4, "disagg_spec": map[string]any{"req_id": body.Params.Spec.Request}}})
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// client is the traceparent of a client, without its flags.
const client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

// sendRequests sends a request with a sampled trace and one with a trace that is not sampled through a proxy, a prefill and
// a decode node, which send their spans to a collector. It returns their tracers, which are closed.
func sendRequests(t *testing.T, endpoint string) map[string]*tracing.Tracer {
	t.Helper()
	tracers := map[string]*tracing.Tracer{}
	for _, service := range []string{"prefill", "decode", "proxy"} {
		tracers[service] = openTracer(t, endpoint, service, 0)
	}
	from, to := openNode(t, "sender", runtime.WithTracer(tracers["prefill"])), openNode(t, "receiver", runtime.WithTracer(tracers["decode"]))
	prefill := newEngine(t, func(ctx context.Context, request string, parent effects.TraceContext) error {
		return put(ctx, from, to, request, parent)
	})
	decode := newEngine(t, func(ctx context.Context, request string, parent effects.TraceContext) error {
		return get(ctx, to, request, parent)
	})
	cfg := proxy.Defaults()
	cfg.Address, cfg.Prefills, cfg.Log, cfg.Tracer = "127.0.0.1:0", []*url.URL{prefill}, discard, tracers["proxy"]
	agents := peerOf(to)
	cfg.Decodes = []proxy.DecodeEngine{{URL: decode, Host: agents.Host, InitPorts: []uint16{agents.InitPort},
		AllocPorts: []uint16{agents.AllocPort}}}
	p, err := proxy.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	send := func(parent string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Addr().String()+"/v1/completions",
			strings.NewReader(`{"model": "m", "prompt": "Once", "max_tokens": 9}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Request-Id", "client-7")
		r.Header.Set("Traceparent", parent)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("the answer has status %d: %v", res.StatusCode, err)
		}
	}
	send(client + "01")
	send(client + "00") // not sampled
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, tracer := range tracers {
		closeTracer(t, tracer)
	}
	return tracers
}

// A request of a client is one trace: the proxy, the requests to both engines, the put, what the receiver did for it, and
// the get. Each span has its parent and lies within it, but for what the receiver does after the put has its outcome.
func TestOneTrace(t *testing.T) {
	at := newCollector(t)
	tracers := sendRequests(t, at.URL)
	want := span.ParseParent(client + "01")
	at.mu.Lock()
	for _, s := range at.spans {
		if !bytes.Equal(s.GetTraceId(), want[:16]) {
			t.Errorf("span %s is in trace %x", s.GetName(), s.GetTraceId())
		}
	}
	at.mu.Unlock()
	const served = "POST /v1/completions"
	if root := at.one(t, served); !bytes.Equal(root.GetParentSpanId(), want[16:24]) || root.service != "proxy" {
		t.Errorf("the proxy's span is %v", root)
	}
	const ms = 1_000_000 // The clocks of a node and of the day are compared each second; here they are those of one host.
	for _, c := range []struct {
		name, service, parent string
		endsInside            bool
	}{
		{"prefill", "proxy", served, true},
		{"decode", "proxy", served, true},
		{"kvferry.put", "prefill", "prefill", true},
		{"kvferry.receive", "decode", "kvferry.put", true},
		{"kvferry.get", "decode", "decode", true},
		{"handshake", "prefill", "kvferry.put", true},
		{"allocation", "prefill", "kvferry.put", true},
		{"wire", "prefill", "kvferry.put", true},
		{"land", "decode", "kvferry.receive", true},
	} {
		s, above := at.one(t, c.name), at.one(t, c.parent)
		if s.service != c.service || !bytes.Equal(s.GetParentSpanId(), above.GetSpanId()) {
			t.Errorf("%s of %s is below %x, want below %s (%x)", c.name, s.service, s.GetParentSpanId(), c.parent, above.GetSpanId())
		}
		if s.GetStartTimeUnixNano()+ms < above.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > above.GetEndTimeUnixNano()+ms ||
			s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s lasts from %d to %d, and %s from %d to %d", c.name, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano(), c.parent,
				above.GetStartTimeUnixNano(), above.GetEndTimeUnixNano())
		}
	}
	// The stages of the put fill its time.
	whole, stages := at.one(t, "kvferry.put"), uint64(0)
	for _, name := range []string{"handshake", "queue", "allocation", "wire", "publish"} {
		for _, s := range at.named(name) {
			stages += s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()
		}
	}
	if took := whole.GetEndTimeUnixNano() - whole.GetStartTimeUnixNano(); took != stages {
		t.Errorf("the put took %d ns and its stages %d ns", took, stages)
	}
	for _, tracer := range tracers {
		if exported, dropped := tracer.Counts(); exported == 0 || dropped > 0 {
			t.Errorf("%d spans were exported, %d dropped", exported, dropped)
		}
	}
}

// A layerwise push is a span from its begin to its end. Each batch of its layers is a put below it, with its stages, and so
// is what the receiver did for each batch.
func TestLayers(t *testing.T) {
	at := newCollector(t)
	tracer := openTracer(t, at.URL, "n", 0)
	from, to := openNodeWith(t, "sender", "use_layerwise: true", runtime.WithTracer(tracer)),
		openNodeWith(t, "receiver", "use_layerwise: true", runtime.WithTracer(tracer))
	parent := effects.TraceContext{0: 1, 16: 2, 24: 1}
	const layers = 2
	pages, err := from.Sender().Reserve(t.Context(), layers)
	if err != nil {
		t.Fatal(err)
	}
	prefill, err := from.Sender().OpenPrefill(runtime.Prefill{Peer: peerOf(to), Request: "r", Keys: chunk, Trace: parent})
	if err != nil {
		t.Fatal(err)
	}
	for layer := range layers {
		if err := prefill.SaveLayer(layer, 16, pages); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := prefill.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pages.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeTracer(t, tracer)
	whole := at.one(t, "kvferry.push_layers")
	if !bytes.Equal(whole.GetParentSpanId(), parent[16:24]) {
		t.Errorf("the span of the push is %v", whole)
	}
	puts := map[string]bool{}
	for _, s := range at.named("kvferry.put") {
		puts[string(s.GetSpanId())] = true
	}
	took, wire := uint64(0), 0
	for _, s := range slices.Concat(at.named("compute"), at.named("finish"), at.named("kvferry.put"), at.named("kvferry.receive")) {
		if !bytes.Equal(s.GetParentSpanId(), whole.GetSpanId()) {
			t.Errorf("%s is below %x, want below %x", s.GetName(), s.GetParentSpanId(), whole.GetSpanId())
		}
		if s.GetName() == "compute" || s.GetName() == "finish" {
			took += s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()
		}
	}
	for _, s := range at.named("wire") {
		if puts[string(s.GetParentSpanId())] {
			wire++
		}
	}
	if want := whole.GetEndTimeUnixNano() - whole.GetStartTimeUnixNano(); took != want || len(puts) == 0 || wire != len(puts) {
		t.Errorf("the push took %d ns, its stages %d ns; it has %d puts, of which %d wrote", want, took, len(puts), wire)
	}
}

// A log line of a traced operation has the ids of its trace and of its span, also if the operation failed: the span is that
// of the put at the sender, and that of the sender's put at the receiver. Lines of other operations have none.
func TestLogLinesOfTraces(t *testing.T) {
	at := newCollector(t)
	tracer := openTracer(t, at.URL, "n", 0)
	lines := map[string]*logtest.Lines{"sender": {}, "receiver": {}}
	nodes := map[string]*runtime.Node{}
	for role, to := range lines {
		log := slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
		nodes[role] = openNode(t, role, runtime.WithTracer(tracer), runtime.WithLogger(log))
	}
	from, to := nodes["sender"], nodes["receiver"]
	parents := map[string]effects.TraceContext{"untraced": {}}
	for i, request := range []string{"good", "refused"} {
		parents[request] = effects.TraceContext{0: byte(i + 1), 16: 2, 24: 1}
	}
	for _, request := range []string{"untraced", "good"} {
		if err := put(t.Context(), from, to, request, parents[request]); err != nil {
			t.Fatal(err)
		}
		if err := get(t.Context(), to, request, parents[request]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := to.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), from, to, "refused", parents["refused"]); runtime.CodeOf(err) != effects.Draining {
		t.Fatalf("a put to a node that drains ends with %v", err)
	}
	for _, n := range nodes { // Then all lines are written.
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	closeTracer(t, tracer)
	spans := map[string]string{}
	for _, s := range at.named("kvferry.put") {
		spans[hex.EncodeToString(s.GetTraceId())] = hex.EncodeToString(s.GetSpanId())
	}
	ids := func(request string) string {
		p := parents[request]
		trace := hex.EncodeToString(p[:16])
		return "trace_id=" + trace + " span_id=" + spans[trace]
	}
	for _, c := range []struct{ role, message, request string }{
		{"sender", "msg=put_ended", "good"},
		{"receiver", "msg=grant_traced", "good"},
		{"sender", "msg=put_ended", "refused"},
		{"sender", `msg="a put failed: draining`, "refused"},
		{"receiver", "msg=alloc_refused", "refused"},
		{"receiver", `msg="a sender is refused: draining`, "refused"},
	} {
		if !slices.ContainsFunc(lines[c.role].LinesWith(c.message), func(line string) bool { return strings.Contains(line, ids(c.request)) }) {
			t.Errorf("no line of the %s has %q and %q:\n%s", c.role, c.message, ids(c.request), lines[c.role])
		}
	}
	if n := lines["sender"].CountText("trace_id="); n != 3 {
		t.Errorf("%d lines of the sender have a trace, want those of 2 puts and of a failure:\n%s", n, lines["sender"])
	}
	refused := parents["refused"]
	for _, s := range at.named("kvferry.receive") {
		if bytes.Equal(s.GetTraceId(), refused[:16]) && s.GetStatus().GetMessage() != effects.Draining.String() {
			t.Errorf("the receiver's span of a put that is refused is %v", s)
		}
	}
	if n := len(at.named("kvferry.receive")); n != 2 {
		t.Errorf("the receiver has %d spans, want one of each traced put", n)
	}
}

// Calls without a parent begin traces of their own as often as the ratio says.
func TestOwnRoots(t *testing.T) {
	at := newCollector(t)
	tracer := openTracer(t, at.URL, "n", 1)
	from, to := openNode(t, "sender", runtime.WithTracer(tracer)), openNode(t, "receiver", runtime.WithTracer(tracer))
	if err := put(t.Context(), from, to, "r", effects.TraceContext{}); err != nil {
		t.Fatal(err)
	}
	never := openTracer(t, at.URL+"/v1/traces", "n", 0)
	never.End(span.Span{Name: "y", Trace: never.Start(effects.TraceContext{0: 1, 16: 2, 24: 1}), Began: time.Now(), Ended: time.Now()})
	if never.Start(effects.TraceContext{}) != (effects.Trace{}) {
		t.Error("a call is sampled with a ratio of 0")
	}
	closeTracer(t, never)
	at.one(t, "y")
	closeTracer(t, tracer)
	root := at.one(t, "kvferry.put")
	if len(root.GetParentSpanId()) != 0 || slices.Equal(root.GetTraceId(), make([]byte, 16)) {
		t.Errorf("the put is %v", root)
	}
	if below := at.one(t, "kvferry.receive"); !bytes.Equal(below.GetParentSpanId(), root.GetSpanId()) {
		t.Errorf("the receiver's span is %v", below)
	}
}

// Without an endpoint there is no tracer.
func TestOff(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	if tracer, err := tracing.Open(tracing.Config{Log: discard}); tracer != nil || err != nil {
		t.Fatalf("a tracer was opened: %v", err)
	}
	at := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at.URL)
	tracer := openTracer(t, "", "n", 1)
	tracer.End(span.Span{Name: "x", Trace: tracer.Start(effects.TraceContext{}), Began: time.Now(), Ended: time.Now()})
	closeTracer(t, tracer)
	at.one(t, "x")
}

// A collector that takes nothing holds nobody up: spans are dropped and counted, and Close waits no longer than it may.
func TestStuckCollector(t *testing.T) {
	release := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer stuck.Close()
	defer close(release)
	tracer, err := tracing.Open(tracing.Config{Endpoint: stuck.URL, Service: "n", Ratio: 1, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	const spans = 20_000
	begun := time.Now()
	for range spans {
		tracer.End(span.Span{Name: "x", Trace: tracer.Start(effects.TraceContext{}), Began: begun, Ended: begun})
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the caller was held up for %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun = time.Now()
	if err := tracer.Close(ctx); err == nil {
		t.Error("spans were exported to a collector that takes none")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if exported, dropped := tracer.Counts(); exported != 0 || dropped != spans {
		t.Errorf("%d spans were exported and %d dropped, of %d", exported, dropped, spans)
	}
}

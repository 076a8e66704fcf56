package attach

import (
	"slices"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/span"
)

// A spanLog is a tracer that remembers below which spans calls were.
type spanLog struct {
	mu      sync.Mutex
	parents []effects.TraceContext
	ended   []string
	reports []effects.Fact
}

// Start implements span.Tracer.
func (l *spanLog) Start(parent effects.TraceContext) effects.Trace {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parents = append(l.parents, parent)
	return effects.Trace{Context: parent}
}

// End implements span.Tracer.
func (l *spanLog) End(s span.Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, s.Name+" "+s.Failed)
}

// RecordReport implements span.Tracer.
func (l *spanLog) RecordReport(e *effects.Observe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, e.Fact)
}

// The trace of a call goes to the node, and a trace of another length is none.
func TestCallsWithTraces(t *testing.T) {
	text := func(role string) string {
		return `
enable_pd: true
pd_role: ` + role + `
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
pd_bidirectional: true
pd_peer_query_port: 7500
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config: {kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}}}
`
	}
	var sent, received spanLog
	from, to := newRigFrom(t, text("sender"), runtime.WithTracer(&sent)), newRigFrom(t, text("receiver"), runtime.WithTracer(&received))
	a, b := from.attach(), to.attach()
	traces := make([][]byte, 4)
	var want []effects.TraceContext
	for i := range traces {
		traces[i] = make([]byte, len(effects.TraceContext{}))
		traces[i][0], traces[i][24] = byte(i+1), 1
		want = append(want, effects.TraceFromWire(traces[i]))
	}
	got := a.ok(protocol.CallReserve, protocol.EngineCall{Count: 1})
	put := func(request string, trace []byte) {
		a.ok(protocol.CallPut, from.withKeys(to.peer(protocol.EngineCall{Target: got.ID, Request: []byte(request), Last: true,
			Trace: trace}), 1))
	}
	put("r", traces[0])
	put("s", traces[1][1:])
	a.ok(protocol.CallRecall, from.withKeys(to.peer(protocol.EngineCall{Op: []byte("recall"), Target: got.ID,
		Request: []byte("r"), PatienceNS: patience, Trace: traces[2]}), 1))
	here := b.ok(protocol.CallGet, protocol.EngineCall{Keys: keys(1), Request: []byte("r"), PatienceNS: patience, Trace: traces[3]})
	b.ok(protocol.CallRelease, protocol.EngineCall{Target: here.ID})
	a.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
	sent.mu.Lock()
	defer sent.mu.Unlock()
	received.mu.Lock()
	defer received.mu.Unlock()
	if w := []effects.TraceContext{want[0], {}, want[2]}; !slices.Equal(sent.parents, w) {
		t.Errorf("the sender's calls are below %v, want %v", sent.parents, w)
	}
	if !slices.Equal(received.parents, want[3:]) || !slices.Equal(received.ended, []string{"kvferry.get "}) {
		t.Errorf("the receiver's calls are below %v, want %v; they are %q", received.parents, want[3:], received.ended)
	}
	if !slices.Equal(sent.ended, []string{"kvferry.recall "}) ||
		!slices.Equal(sent.reports, []effects.Fact{effects.FactPutEnded, effects.FactPutEnded}) ||
		!slices.Equal(received.reports, []effects.Fact{effects.FactGrantTraced, effects.FactRecalled}) {
		t.Errorf("the nodes report %q, %v and %v", sent.ended, sent.reports, received.reports)
	}
}

package runtime

import (
	"cmp"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// facts counts what the machine observes and what planes do for it, and logs failures: one line per cause and peer
// within an interval.
type facts struct {
	mu        sync.Mutex // guards meter, which is read by other goroutines
	meter     metrics.Meter
	listeners []MetricListener
	lines     *loglimit.Log
	caller    func(effects.Conn) netip.Addr // returns the remote address of a served connection
	// lastMalformed is the last malformed answer that was logged, by peer and reason, so that the put that fails
	// because of it is not logged again.
	lastMalformed peerProblem
}

// peerProblem identifies a logged problem of a peer.
type peerProblem struct{ peer, field, theirs string }

const factKinds = effects.FactCount

// failureTexts contains the beginning of the log line for each kind of fact that reports a failure. The other kinds
// report no failure, or a failure that a command's outcome reports.
//
//kvferry:table
var failureTexts = [factKinds]string{
	effects.FactLinkDown:     "a receiver cannot be used",
	effects.FactPutEnded:     "a put failed",
	effects.FactAllocRefused: "a sender is refused",
	effects.FactHelloRefused: "the handshake of a peer is refused",
	effects.FactMalformed:    "a peer sent a malformed message",
	effects.FactGivenBack:    "a sender gave up a grant or an offer",
	effects.FactProxyTold:    "the proxy could not be notified",
	effects.FactRecallEnded:  "a recall failed",
	effects.FactRecalled:     "a recall by a sender is refused",
	effects.FactLayersEnded:  "a layerwise push failed",
	effects.FactShared:       "a peer is refused shared chunks",
	effects.FactEndTold:      "notifying a receiver of the end of a request failed",
}

// recordFact counts an observation of the machine, logs a warning if it reports a failure, and logs it at the debug
// level.
func (f *facts) recordFact(log *slog.Logger, e *effects.Observe) {
	f.recordEffect(e)
	if int(e.Fact) < factKinds && int(e.Code) < effects.CodeCount {
		f.logFailure(e)
	}
	// A disabled level costs one comparison; nothing is formatted.
	if isTraced(e) {
		log.LogAttrs(bg, slog.LevelDebug, e.Fact.String(), slog.String("code", e.Code.String()), slog.Uint64("count", uint64(e.Count)),
			slog.Uint64("id", e.ID), slog.Any("peer", shortID(e.Peer)), slog.Any("trace_id", traceID(e.Report.Trace.Context)),
			slog.Any("span_id", spanID(e.Report.Trace.Context)))
		return
	}
	log.LogAttrs(bg, slog.LevelDebug, e.Fact.String(), slog.String("code", e.Code.String()),
		slog.Uint64("count", uint64(e.Count)), slog.Uint64("id", e.ID), slog.Any("peer", shortID(e.Peer)))
}

// isTraced reports whether a fact belongs to an operation that has a trace.
func isTraced(e *effects.Observe) bool {
	return e.Report != nil && e.Report.Trace.Context != (effects.TraceContext{})
}

// traceID and spanID are contexts of traces that a log line shows: the trace that the operation belongs to, and the span
// in it. They are formatted only if the line is written.
type (
	traceID effects.TraceContext
	spanID  effects.TraceContext
)

// LogValue implements slog.LogValuer.
func (t traceID) LogValue() slog.Value { return slog.StringValue(hex.EncodeToString(t[:16])) }

// LogValue implements slog.LogValuer.
func (s spanID) LogValue() slog.Value { return slog.StringValue(hex.EncodeToString(s[16:24])) }

// logFailure logs a warning about a failure, unless another line or an outcome reports the same failure.
func (f *facts) logFailure(e *effects.Observe) {
	w := e.Why
	if w == nil || failureTexts[e.Fact] == "" || f.lines == nil {
		return
	}
	if c := e.Code; c == effects.OK || c == effects.Cancelled || c == effects.Closed || c == effects.Ended ||
		c == effects.BackedOff {
		return // The failure was intended, or has been reported before.
	}
	if (e.Fact == effects.FactPutEnded || e.Fact == effects.FactRecallEnded) && w.Stage < effects.StageAsk {
		// The failure concerns the caller only, or is the result of the handshake, which has its own line.
		return
	}
	if e.Fact == effects.FactLinkDown && w.Stage == effects.StageLink {
		// Peers connect and disconnect in normal operation. Work that was lost with a link has its own line.
		return
	}
	if w.Stage == effects.StageConnect && e.Code == effects.Unreachable {
		return // The code that dialled has logged the address.
	}
	peer, address := w.PeerName(), ""
	if e.Fact == effects.FactAllocRefused || e.Fact == effects.FactHelloRefused || e.Fact == effects.FactMalformed ||
		e.Fact == effects.FactRecalled {
		// ID is the connection by which the message arrived.
		if at := f.caller(effects.Conn(e.ID)); at.IsValid() {
			address = at.String()
		}
	}
	if peer == "" {
		peer, address = address, ""
	}
	problem := peerProblem{peer, w.Field, w.Theirs}
	switch {
	case e.Fact == effects.FactMalformed:
		f.lastMalformed = problem
	case e.Code == effects.Malformed && f.lastMalformed == problem:
		return
	}
	cause := failureTexts[e.Fact] + ": " + e.Code.String()
	if w.Field != "" {
		cause += ": " + w.Field
	}
	remedy := w.Remedy
	if remedy == "" {
		remedy = effects.RemedyOf(e.Code)
	}
	attrs := []any{"code", e.Code.String(), "stage", w.Stage.String()}
	for _, a := range [...]struct{ key, value string }{
		{"field", w.Field}, {"ours", w.Ours}, {"theirs", w.Theirs}, {"peer_message", w.Said}, {"remedy", remedy},
	} {
		if a.value != "" {
			attrs = append(attrs, a.key, a.value)
		}
	}
	if address != "" {
		attrs = append(attrs, "address", address)
	}
	if w.Peer != (effects.Incarnation{}) {
		attrs = append(attrs, "incarnation", shortID(w.Peer))
	}
	if isTraced(e) {
		attrs = append(attrs, "trace_id", traceID(e.Report.Trace.Context), "span_id", spanID(e.Report.Trace.Context))
	}
	f.lines.Warn(cause, peer, attrs...)
}

// recordEvent gives the meter an event just before the machine has it.
func (f *facts) recordEvent(ev effects.Event) {
	f.mu.Lock()
	f.meter.RecordEvent(ev)
	all := f.meter.TakeObservations()
	f.mu.Unlock()
	f.tell(all)
}

// recordEffect gives the meter an effect of the machine.
func (f *facts) recordEffect(e effects.Effect) {
	f.mu.Lock()
	f.meter.RecordEffect(now(), e)
	all := f.meter.TakeObservations()
	f.mu.Unlock()
	f.tell(all)
}

// tell gives values of histograms to the listeners. Only the goroutine that steps the machine records, so the values
// stay as they are until the last listener has them.
func (f *facts) tell(all []metrics.Observation) {
	for i := range all {
		for _, listen := range f.listeners {
			listen(&all[i])
		}
	}
}

// A FactCount is the number of times that the machine observed one kind of fact with one code.
type FactCount = metrics.FactCount

// listCounts returns the counts that are not zero, by kind and code.
func (f *facts) listCounts() []FactCount {
	f.mu.Lock()
	all := f.meter.AppendFacts(nil)
	f.mu.Unlock()
	slices.SortFunc(all, func(a, b FactCount) int { return cmp.Or(cmp.Compare(a.Fact, b.Fact), cmp.Compare(a.Code, b.Code)) })
	return all
}

// listCounters returns the present values of all counters of the meter.
func (f *facts) listCounters() []metrics.Reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.meter.AppendCounters(nil)
}

package runtime

import (
	"log/slog"
	"net/netip"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// facts counts what the machine observed, by kind and code, and tells of what failed: one line for each cause and peer
// in a while.
type facts struct {
	counts [factKinds][effects.CodeCount]atomic.Uint64
	lines  *loglimit.Log
	caller func(effects.Conn) netip.Addr // where a connection that is served comes from
	// answer is of whom it was told last that its answer makes no sense, and why: the put that ends with it is not told
	// again.
	answer blame
}

// blame is what a line says of a peer, in short.
type blame struct{ who, field, theirs string }

const factKinds = effects.FactCount

// told is how a line about a fact that tells of a failure begins. The others tell of none, or an outcome does.
//
//kvferry:table
var told = [factKinds]string{
	effects.FactLinkDown:     "a receiver cannot be used",
	effects.FactPutEnded:     "a put failed",
	effects.FactAllocRefused: "a sender is refused",
	effects.FactHelloRefused: "a peer that called is turned away",
	effects.FactMalformed:    "bytes of a peer are no message that belongs here",
	effects.FactGivenBack:    "a sender gave up what it was granted, or what it offered",
	effects.FactProxyTold:    "the proxy was not told",
	effects.FactRecallEnded:  "a recall failed",
	effects.FactRecalled:     "a sender may not read back",
	effects.FactLayersEnded:  "a layerwise push failed",
	effects.FactShared:       "a peer may not read what is shared",
	effects.FactEndTold:      "telling a receiver how a request ended",
}

func (f *facts) observe(log *slog.Logger, e *effects.Observe) {
	if int(e.Fact) < factKinds && int(e.Code) < effects.CodeCount {
		f.counts[e.Fact][e.Code].Add(1)
		f.tell(e)
	}
	// Disabled levels cost a comparison, not the formatting.
	log.LogAttrs(bg, slog.LevelDebug, e.Fact.String(), slog.String("code", e.Code.String()),
		slog.Uint64("count", uint64(e.Count)), slog.Uint64("id", e.ID), slog.Any("peer", shortID(e.Peer)))
}

// tell writes a warning about what failed, if nothing else has said or will say it.
func (f *facts) tell(e *effects.Observe) {
	w := e.Why
	if w == nil || told[e.Fact] == "" || f.lines == nil {
		return
	}
	if c := e.Code; c == effects.OK || c == effects.Cancelled || c == effects.Closed || c == effects.Ended ||
		c == effects.BackedOff {
		return // Somebody wanted it so, or was told before.
	}
	if (e.Fact == effects.FactPutEnded || e.Fact == effects.FactRecallEnded) && w.Stage < effects.StageAsk {
		return // It is the caller's alone, or what became of the handshake, which has its own line.
	}
	if e.Fact == effects.FactLinkDown && w.Stage == effects.StageLink {
		return // Peers come and go. What was lost with one has its own line.
	}
	if w.Stage == effects.StageConnect && e.Code == effects.Unreachable {
		return // Whoever dialled has said where.
	}
	who, address := w.Who(), ""
	if e.Fact == effects.FactAllocRefused || e.Fact == effects.FactHelloRefused || e.Fact == effects.FactMalformed ||
		e.Fact == effects.FactRecalled {
		if at := f.caller(effects.Conn(e.ID)); at.IsValid() { // ID is the connection that it came by.
			address = at.String()
		}
	}
	if who == "" {
		who, address = address, ""
	}
	this := blame{who, w.Field, w.Theirs}
	switch {
	case e.Fact == effects.FactMalformed:
		f.answer = this
	case e.Code == effects.Malformed && f.answer == this:
		return
	}
	cause := told[e.Fact] + ": " + e.Code.String()
	if w.Field != "" {
		cause += ": " + w.Field
	}
	remedy := w.Remedy
	if remedy == "" {
		remedy = effects.RemedyOf(e.Code)
	}
	attrs := []any{"code", e.Code.String(), "stage", w.Stage.String()}
	for _, a := range [...]struct{ key, value string }{
		{"field", w.Field}, {"ours", w.Ours}, {"theirs", w.Theirs}, {"it_says", w.Said}, {"remedy", remedy},
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
	f.lines.Warn(cause, who, attrs...)
}

// A Count is how often the machine observed one kind of fact with one code.
type Count struct {
	Fact  effects.Fact
	Code  effects.Code
	Times uint64
}

func (f *facts) all() []Count {
	var all []Count
	for fact := range f.counts {
		for code := range f.counts[fact] {
			if n := f.counts[fact][code].Load(); n > 0 {
				all = append(all, Count{effects.Fact(fact), effects.Code(code), n})
			}
		}
	}
	return all
}

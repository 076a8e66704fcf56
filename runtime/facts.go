package runtime

import (
	"log/slog"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// facts counts what the machine observed, by kind and code.
type facts struct {
	counts [factKinds][effects.CodeCount]atomic.Uint64
}

const factKinds = int(effects.FactCount)

func (f *facts) observe(log *slog.Logger, e *effects.Observe) {
	if int(e.Fact) < factKinds && int(e.Code) < effects.CodeCount && f.counts[e.Fact][e.Code].Add(1) == 1 {
		f.explain(log, e)
	}
	// Disabled levels cost a comparison, not the formatting.
	log.LogAttrs(bg, slog.LevelDebug, e.Fact.String(), slog.String("code", e.Code.String()),
		slog.Uint64("count", uint64(e.Count)), slog.Uint64("id", e.ID), slog.Any("peer", shortID(e.Peer)))
}

// explain says in words, the first time only, what is wrong with how nodes were put together and no outcome here tells.
func (f *facts) explain(log *slog.Logger, e *effects.Observe) {
	if e.Fact == effects.FactAllocRefused && e.Code == effects.Refused {
		log.Warn("an offer is refused: its sender says by name, and not by address, where it takes words; give its pd_peer_host as an address, or set "+
			"link.peer_names: true here", "peer", shortID(e.Peer), "chunks", e.Count)
	}
	if e.Fact == effects.FactAllocRefused && e.Code == effects.Unsupported {
		log.Warn("a sender without kvferry's extensions is refused: no plane here lets anybody write who proves no identity, and nothing would tell whether "+
			"pages that it offers still hold what it offered; run kvferry at that sender too", "chunks", e.Count)
	}
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

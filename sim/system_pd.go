package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// pdSystem is disaggregated prefill and decode: ranks, prefill engines that put and decode engines that get, a proxy
// between them, plain senders and readers, and strangers who speak our protocol.
var pdSystem = system{
	name:     "pd",
	profiles: profiles,
	expand:   Expand,
	cast:     func(_ *world, p *plan.Plan, n *node) { castRank(p, n) },
	boot:     (*world).newRank,
	engine: engine{
		begin:    func(w *world) { w.loadJobs(w.source.Jobs) },
		act:      (*world).enginesAct,
		command:  (*world).commanded,
		named:    func(w *world, n *node, t effects.Ticket) plan.Subject { return w.commandOf(n, t).name },
		outcome:  (*world).deliverTo,
		returned: (*world).returnTo,
		observed: (*world).observed,
		notice:   (*world).notice,
		tell:     (*world).endTold,
		patience: (*world).patience,
		keeps:    func(w *world) effects.Duration { return 12 * w.plan.Rank.ClaimTTL / 10 },
		overdue:  (*world).overdue,
		probe:    (*world).probe,
		drain:    (*world).drain,
	},
	outsider: outsider{asked: (*world).plainAsked, answered: (*world).plainReply, link: (*world).plainLink},
	words:    words{legible: legible, senseless: senseless, wrong: wrongAnswer, good: goodRequest},
	mischief: (*world).strangersMischief,
	closed:   closedPorts,
}

// enginesAct does what engines, the proxy and plain peers have queued.
func (w *world) enginesAct(d delivery) {
	switch d.kind {
	case kindPosted:
		w.posted(d)
	case kindStart:
		w.startJob(int(d.a))
	case kindFilled:
		w.filled(int(d.a), int(d.b))
	case kindFetch:
		switch d.b {
		case wanted:
			w.fetch(int(d.a))
		case wantedLater:
			w.fetchChunks(int(d.a), int(d.c), true)
		default:
			w.take(int(d.a))
		}
	case kindLetGo:
		w.letGo(d.a)
	case kindAbort:
		w.abort(d.a)
	case kindPlain:
		w.plainHeard(d)
	case kindPlainLoad:
		w.plainLoaded(int(d.a))
	case kindPlainStore:
		w.plainStored(int(d.a), int(d.b))
	case kindConflict:
		if n := w.nodes[d.node]; n.up && n.life == d.life {
			w.conflict(d.a, int(d.b))
		}
	default:
		panic("BUG: delivery of kind " + forms[d.kind].name)
	}
}

// strangersMischief is a fault that engines or strangers make.
func (w *world) strangersMischief(n *node, f *plan.Scheduled) {
	switch d := draw.Of(f.Pick); f.Fault {
	case plan.FaultDrain:
		w.leave(n, effects.Duration(f.For), f.Pick%3 == 0)
	case plan.FaultHostile:
		w.address(n, d)
	case plan.FaultForged:
		w.forge(n, d)
	case plan.FaultGreedy:
		w.beset(n, d)
	default:
		panic("BUG: " + f.Fault.String() + " is no mischief")
	}
}

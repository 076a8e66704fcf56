package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// System is the simulated system of disaggregated prefill and decode: ranks, prefill engines that put, decode engines
// that get, a proxy between them, plain senders and readers, and strangers that speak our protocol.
var System = world.System{
	Name:  "pd",
	Cast:  func(w *world.World, p *plan.Plan, n *world.Node) { of(w).castRank(p, n) },
	Boot:  func(w *world.World, n *world.Node) (world.Pools, error) { return of(w).newRank(n) },
	Calls: func(n *world.Node, name effects.Incarnation) bool { return IsNameOf(n, name) },
	Invited: func(n *world.Node, peer, us effects.Incarnation, token []byte) bool {
		return invited(n, peer, us, token)
	},
	Tidy: func(w *world.World) { of(w).tidy() },
	Engine: world.Engine{
		Begin: func(w *world.World) { of(w).loadJobs(w.Source.Jobs) },
		Act:   func(w *world.World, d world.Delivery) { of(w).enginesAct(d) },
		Command: func(w *world.World, n *world.Node, t effects.Ticket) effects.CommandBody {
			return of(w).Commands[t-1].commanded(of(w), n, t)
		},
		Named:    func(w *world.World, n *world.Node, t effects.Ticket) plan.Subject { return of(w).CommandOf(n, t).Name },
		Outcome:  func(w *world.World, n *world.Node, e *effects.Deliver) { of(w).deliverTo(n, e) },
		Returned: func(w *world.World, n *world.Node, e *effects.Return) { of(w).returnTo(n, e) },
		Observed: func(w *world.World, n *world.Node, e *effects.Observe) { of(w).observed(e) },
		Died:     func(w *world.World, n *world.Node) { of(w).VoidCommands(n) },
		Notice: func(w *world.World, n *world.Node, body []byte, taken bool) (request, missing uint64, ok bool) {
			return of(w).notice(n, body, taken)
		},
		Tell: func(w *world.World, n *world.Node, body []byte, taken bool) bool {
			return of(w).endTold(n, body, taken)
		},
		Patience:   func(w *world.World) effects.Duration { return of(w).patience() },
		Keeps:      func(w *world.World) effects.Duration { return 12 * of(w).Plan.Rank.ClaimTTL / 10 },
		Unfinished: func(w *world.World) int { return of(w).Unfinished },
		Overdue:    func(w *world.World) { of(w).overdue() },
		Probe:      func(w *world.World) { of(w).Probe() },
		Drain:      func(w *world.World, n *world.Node) { drain(of(w), n, 5*effects.Second) },
		Scatter:    func(w *world.World, n *world.Node, e *effects.Scatter) bool { return scatters(of(w), n, e) },
		Asked:      func(w *world.World, c *world.Conn, corr effects.Corr, body []byte) { of(w).dispatched(c, corr, body) },
	},
	Outsider: world.Outsider{
		Asked: func(w *world.World, c *world.Conn, corr effects.Corr, body []byte) {
			of(w).Reader.asked(of(w), c, corr, body)
		},
		Answered: func(w *world.World, r *world.Request, body []byte) {
			j := &of(w).Jobs[r.Plain-1]
			j.plain.reply(of(w), j, r, body)
		},
		Link: func(w *world.World, n *world.Node) *world.Link { return of(w).Reader.link(w, n) },
	},
	Words: world.Words{
		OnItsWay: func(w *world.World, n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64,
			body []byte) []byte {
			return of(w).encoders.onItsWay(of(w), n, f, c, direction, nth, body)
		},
		Asked: func(w *world.World, n *world.Node, c *world.Conn, body []byte) []byte {
			return of(w).encoders.request(of(w), n, c, body)
		},
		Legible:   func(*world.World, *world.Conn) func([]byte) bool { return legible },
		Senseless: senseless, Wrong: wrongAnswer, Good: goodRequest,
	},
	Mischief: func(w *world.World, n *world.Node, f *plan.Scheduled) { of(w).strangersMischief(n, f) },
	Marks:    PointMark,
	Closed:   ClosedPorts,
}

// enginesAct performs a queued action of an engine, the proxy or a plain peer.
func (w *Cluster) enginesAct(d world.Delivery) {
	switch d.Kind {
	case world.KindPosted:
		w.posted(d)
	case world.KindStart:
		w.Jobs[d.A].start(w)
	case world.KindFilled:
		j := &w.Jobs[d.A]
		if flow := w.Flows.owner(j); flow != nil && flow.Later != nil && (j.Batches[0].Reserve != 0 || flow.Alone) {
			flow.Later(w, w.Nodes[d.Node], j, int(d.B))
			return
		}
		j.filled(w, int(d.B))
	case world.KindFetch:
		switch d.B {
		case wanted:
			w.Jobs[d.A].fetch(w)
		case wantedLater:
			w.Jobs[d.A].FetchChunks(w, int(d.C), true)
		default:
			w.Jobs[d.A].Get(w)
		}
	case world.KindLetGo:
		w.Commands[d.A-1].letGo(w, effects.Ticket(d.A))
	case world.KindAbort:
		w.Commands[d.A-1].abort(w, effects.Ticket(d.A))
	case world.KindPlain:
		w.Jobs[d.A].plain.heard(w, &w.Jobs[d.A], d)
	case world.KindPlainLoad:
		w.Reader.loaded(w, int(d.A))
	case world.KindPlainStore:
		w.PlainWrites[d.A].stored(w, int(d.B))
	case world.KindConflict:
		if n := w.Nodes[d.Node]; n.Up && n.Life == d.Life {
			contradict(w, n, d)
		}
	case world.KindAttached:
		for _, f := range w.Flows {
			if f.Act != nil {
				f.Act(w, d)
			}
		}
	default:
		panic("BUG: delivery of kind " + world.Forms[d.Kind].Name)
	}
}

// strangersMischief performs a scheduled fault that an engine or a stranger causes.
func (w *Cluster) strangersMischief(n *world.Node, f *plan.Scheduled) {
	switch s := (stranger{w, n, draw.Of(f.Pick)}); f.Fault {
	case plan.FaultDrain:
		w.Leave(n, effects.Duration(f.For), f.Pick < plan.DrainedAgain && f.Pick%3 == 0)
		if f.Pick >= plan.DrainedAgain {
			leaveAgain(w, n, effects.Duration(f.For))
		}
	case plan.FaultHostile:
		s.address()
	case plan.FaultForged:
		s.forge()
	case plan.FaultGreedy:
		s.beset()
	case plan.FaultCrowd:
		s.crowd()
	default:
		panic("BUG: " + f.Fault.String() + " is no mischief")
	}
}

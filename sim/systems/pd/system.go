package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Cluster implements [world.System]: disaggregated prefill and decode with ranks, prefill engines that put, decode
// engines that get, a proxy between them, plain senders and readers, and strangers that speak our protocol. The longer
// methods of the interface are in the files with the related code.
var _ world.System = (*Cluster)(nil)

// IsName reports whether peers know the present incarnation of n by name.
func (w *Cluster) IsName(n *world.Node, name effects.Incarnation) bool { return IsNameOf(n, name) }

// PointMark returns the coverage point of the ranks' first mark.
func (w *Cluster) PointMark() coverage.Point { return pointMark }

// ClosedPorts lists the channels on which noise reaches a rank that listens on no channel.
func (w *Cluster) ClosedPorts() []effects.Channel { return pulledsPorts }

// CommandBody returns the body of a command that n's machine is about to receive.
func (w *Cluster) CommandBody(n *world.Node, t effects.Ticket) effects.CommandBody {
	return w.Commands[t-1].commanded(w, n, t)
}

// CommandName returns the name of a command in draws.
func (w *Cluster) CommandName(n *world.Node, t effects.Ticket) plan.Subject {
	return w.CommandOf(n, t).Name
}

// KeepTime returns the longest time for which a rank keeps a chunk that no peer requests.
func (w *Cluster) KeepTime() effects.Duration { return 12 * w.Plan.Rank.ClaimTTL / 10 }

// Drain asks n to drain.
func (w *Cluster) Drain(n *world.Node) { drain(w, n, 5*effects.Second) }

// OutsiderAsked passes a request to the plain reader.
func (w *Cluster) OutsiderAsked(c *world.Conn, corr effects.Corr, body []byte) {
	w.Reader.asked(w, c, corr, body)
}

// OutsiderAnswered passes a reply to the plain sender of the job.
func (w *Cluster) OutsiderAnswered(r *world.Request, body []byte) {
	j := &w.Jobs[r.Plain-1]
	j.plain.reply(w, j, r, body)
}

// OutsiderLink returns a link to the plain reader.
func (w *Cluster) OutsiderLink(n *world.Node) *world.Link { return w.Reader.link(&w.World, n) }

// InTransit returns the bytes of a message of n that arrive.
func (w *Cluster) InTransit(n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64, body []byte) []byte {
	return w.encoders.onItsWay(w, n, f, c, direction, nth, body)
}

// RequestInTransit returns the bytes of a request of n that arrive.
func (w *Cluster) RequestInTransit(n *world.Node, c *world.Conn, body []byte) []byte {
	return w.encoders.request(w, n, c, body)
}

// Act performs a queued action of an engine, the proxy or a plain peer.
func (w *Cluster) Act(d world.Delivery) {
	switch d.Kind {
	case world.KindPosted:
		w.posted(d)
	case world.KindStart:
		w.Jobs[d.A].start(w)
	case world.KindFilled:
		j := &w.Jobs[d.A]
		if flow := w.Flows.owner(j); flow != nil && flow.Later != nil && (j.Batches[0].Reserve != 0 || flow.Alone != nil) {
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
			if f.Processes != nil {
				f.Processes.Act(w, d)
			}
		}
	default:
		panic("BUG: delivery of kind " + world.Forms[d.Kind].Name)
	}
}

// Mischief performs a scheduled fault that an engine or a stranger causes.
func (w *Cluster) Mischief(n *world.Node, f *plan.Scheduled) {
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

package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Cluster implements [world.System]: disaggregated prefill and decode with ranks, prefill engines that put, decode
// engines that get, a proxy between them, plain senders and readers, and strangers that speak our protocol. The longer
// methods of the interface are in the files with the related code.
var _ world.System = (*Cluster)(nil)

// IsIncarnation reports whether peers know the present incarnation of n by name.
func (w *Cluster) IsIncarnation(n *world.Node, name effects.Incarnation) bool {
	return IsNameOf(n, name)
}

// FirstMarkPoint returns the coverage point of the ranks' first mark.
func (w *Cluster) FirstMarkPoint() coverage.Point { return pointMark }

// ClosedPorts lists the channels on which noise reaches a rank that listens on no channel.
func (w *Cluster) ClosedPorts() []effects.Channel { return pullSenderChannels }

// CommandBody returns the body of a command that n's machine is about to receive.
func (w *Cluster) CommandBody(n *world.Node, t effects.Ticket) effects.CommandBody {
	return w.Commands[t-1].handleReceipt(w, n, t)
}

// CommandName returns the name of a command in draws.
func (w *Cluster) CommandName(n *world.Node, t effects.Ticket) plan.Subject {
	return w.CommandOf(n, t).Name
}

// KeepTime returns the longest time for which a rank keeps a chunk that no peer requests.
func (w *Cluster) KeepTime() effects.Duration { return 12 * w.Setup.Rank.ClaimTTL / 10 }

// DrainNode asks n to drain.
func (w *Cluster) DrainNode(n *world.Node) { giveDrain(w, n, 5*effects.Second) }

// HandleOutsiderRequest passes a request to the plain reader.
func (w *Cluster) HandleOutsiderRequest(c *world.Conn, corr effects.Corr, body []byte) {
	w.PlainReader.handleRequest(w, c, corr, body)
}

// HandleOutsiderReply passes a reply to the plain sender of the job.
func (w *Cluster) HandleOutsiderReply(r *world.Request, body []byte) {
	j := &w.Jobs[r.VanillaJob-1]
	j.plain.sendReply(w, j, r, body)
}

// NewOutsiderLink returns a link to the plain reader.
func (w *Cluster) NewOutsiderLink(n *world.Node) *world.Link {
	return w.PlainReader.newLink(&w.World, n)
}

// MessageInTransit returns the bytes of a message of n that arrive.
func (w *Cluster) MessageInTransit(n *world.Node, f plan.Fault, c *world.Conn, direction, nth uint64, body []byte) []byte {
	return w.encoder.corruptOrEncode(w, n, f, c, direction, nth, body)
}

// RequestInTransit returns the bytes of a request of n that arrive.
func (w *Cluster) RequestInTransit(n *world.Node, c *world.Conn, body []byte) []byte {
	return w.encoder.encodeRequest(w, n, c, body)
}

// HandleEngineDelivery performs a queued action of an engine, the proxy or a plain peer.
func (w *Cluster) HandleEngineDelivery(d world.Delivery) {
	switch d.Kind {
	case world.KindProxyPost:
		w.forwardRequest(d)
	case world.KindStartJob:
		w.Jobs[d.A].startWork(w)
	case world.KindPagesFilled:
		j := &w.Jobs[d.A]
		if flow := w.Flows.ownerOf(j); flow != nil && flow.ContinueJob != nil && (j.Batches[0].Reserve != 0 || flow.Exclusive != nil) {
			flow.ContinueJob(w, w.Nodes[d.Node], j, int(d.B))
			return
		}
		j.continueBatch(w, int(d.B))
	case world.KindFetchJob:
		switch d.B {
		case fetchForwarded:
			w.Jobs[d.A].readChunks(w)
		case fetchPostponed:
			w.Jobs[d.A].FetchChunks(w, int(d.C), true)
		default:
			w.Jobs[d.A].GetChunks(w)
		}
	case world.KindReleasePages:
		w.Commands[d.A-1].rereadAndRelease(w, effects.Ticket(d.A))
	case world.KindAbortCommand:
		w.Commands[d.A-1].abortPending(w, effects.Ticket(d.A))
	case world.KindVanillaReply:
		w.Jobs[d.A].plain.handleReply(w, &w.Jobs[d.A], d)
	case world.KindVanillaLoad:
		w.PlainReader.performLoad(w, int(d.A))
	case world.KindVanillaStore:
		w.PlainWrites[d.A].performStore(w, int(d.B))
	case world.KindConflict:
		if n := w.Nodes[d.Node]; n.Up && n.Incarnation == d.Incarnation {
			giveQueuedConflict(w, n, d)
		}
	case world.KindAttached:
		for _, f := range w.Flows {
			if f.Processes != nil {
				f.Processes.HandleDelivery(w, d)
			}
		}
	default:
		panic("BUG: delivery of kind " + world.LineForms[d.Kind].Name)
	}
}

// StartFault performs a scheduled fault that an engine or a stranger causes.
func (w *Cluster) StartFault(n *world.Node, f *plan.ScheduledFault) {
	switch s := newStranger(w, n, f); f.Fault {
	case plan.FaultDrain:
		w.StartDrain(n, effects.Duration(f.For), f.Pick < plan.PickDrainTwice && f.Pick%3 == 0)
		if f.Pick >= plan.PickDrainTwice {
			scheduleSecondDrain(w, n, effects.Duration(f.For))
		}
	case plan.FaultHostileMessage:
		s.sendChangedCopy()
	case plan.FaultDoneForged:
		s.forgeDone()
	case plan.FaultGreedyPeer:
		s.requestGreedily()
	case plan.FaultHelloCrowd:
		s.connectCrowd()
	default:
		panic("BUG: " + f.Fault.String() + " is not a fault that engines or strangers cause")
	}
}

package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// queuePut queues the put for its peer's lane. A put that was offered before keeps the operation id and the
// lease: the next offer is a retry.
func (f *Source) queuePut(e *flow.Env, h table.Handle, p *putRow) {
	p.phase, p.Conn = putWaiting, 0
	p.EnterPhase(e, effects.PhaseQueue)
	f.puts.QueueAlloc(e, h)
	f.sendQueued(e, p.Peer)
}

// queueWithdrawal queues the put for the commit lane, on which the withdrawal is sent.
func (f *Source) queueWithdrawal(e *flow.Env, h table.Handle, p *putRow) {
	p.phase, p.Conn = putWithdrawing, 0
	f.puts.QueueFinal(h, !p.lease.MayBeRead())
	e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerPut, h))
	f.sendQueued(e, p.Peer)
}

// sendQueued advances the puts of one peer that wait for the link, for room below the high-water mark, for the alloc
// lane or for the commit lane.
//
// One step stops or offers only as many puts as it has work for. The remaining puts stay first in the queue, and
// the next call looks at these first, so no put that is to be stopped is offered.
func (f *Source) sendQueued(e *flow.Env, peer table.Handle) {
	if !f.stopBackedOff(e, peer) {
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		for h, cause := f.puts.NextUnlinkable(e, peer); h != 0 && f.puts.MayStop(e, h); h, cause = f.puts.NextUnlinkable(e, peer) {
			f.stopPut(e, h, f.puts.Get(h), cause)
		}
		return
	}
	if !f.stopOrphans(e, peer) {
		return
	}
	for h := f.puts.FirstAlloc(peer); h != 0 && hasLaneRoom(e, peer) && f.mayOffer(e, f.puts.Get(h)); h = f.puts.FirstAlloc(peer) {
		if !f.puts.MaySend(e, h) {
			return
		}
		if !f.puts.Get(h).lease.MayBeRead() {
			f.stopWaitingForRoom(peer) // Not earlier: in a step without work left the peer would lose its turn to the others.
		}
		f.puts.UnqueueAlloc(h)
		e.Work.SpendRows(f.puts.Get(h).Size())
		if f.puts.FirstAlloc(peer) == 0 {
			f.stopWaitingForRoom(peer) // A put that was offered before needs no room.
		}
		f.sendOffer(e, h, e.Links.AcquireLane(&e.Env, peer, link.LaneAlloc))
		if hasLaneRoom(e, peer) && !f.stopOrphans(e, peer) {
			return
		}
	}
	if h, conn := f.puts.TakeFinal(e, peer); h != 0 {
		f.sendWithdrawal(e, h, conn)
	}
}

// stopBackedOff ends the waiting puts of a peer for which the breaker of the peer is open (a smaller put may
// still be sent). A put that was offered before is withdrawn, and the memory waits for the end of the lease.
// stopBackedOff returns false if some puts are left for the next step.
func (f *Source) stopBackedOff(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.NextBackedOff(e, peer); h != 0; h = f.puts.NextBackedOff(e, peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		f.stopPut(e, h, f.puts.Get(h), effects.BackedOff)
	}
	return true
}

// hasLaneRoom reports whether the peer's alloc lane has a place for one more offer now.
func hasLaneRoom(e *flow.Env, peer table.Handle) bool {
	return e.Links.EnsureLane(&e.Env, peer, link.LaneAlloc) && put.MayRequest(e, peer)
}

// stopOrphans ends the puts at the head of a queue that were offered to an earlier incarnation of the peer, and
// returns false if some are left for the next step.
func (f *Source) stopOrphans(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.FirstAlloc(peer); h != 0 && f.puts.Get(h).isOrphaned(e); h = f.puts.FirstAlloc(peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		e.Out.Mark(Marks.OfferOrphaned)
		p := f.puts.Get(h)
		p.SetReason(effects.PeerLost, effects.Why{Field: "incarnation", Theirs: "new (the peer has restarted since the offer)"})
		f.stopPut(e, h, p, effects.PeerLost)
	}
	return true
}

// isOrphaned reports whether a put that waits to be offered again was offered to an earlier incarnation of its
// peer.
func (p *putRow) isOrphaned(e *flow.Env) bool {
	_, currentID := e.Links.IncarnationOf(p.Peer).Link()
	return p.lease.MayBeRead() && p.PeerID != currentID
}

// mayOffer reports whether the first put of a peer with a free lane may be offered. The put's pages must fit
// below the high-water mark, and no other peer's put may have waited for room before. A put with leased pages
// needs no room. If mayOffer returns false, it has appended the peer to the line; otherwise it changes nothing.
func (f *Source) mayOffer(e *flow.Env, p *putRow) bool {
	if p.lease.MayBeRead() || f.mayTakeRoom(p.Peer) && f.cfg.hasRoom(e, p) {
		return true
	}
	if f.waitForRoom(p.Peer) {
		e.Out.Mark(Marks.Backpressure)
	}
	return false
}

// hasRoom reports whether the pages of a put may be leased now.
func (c *SourceConfig) hasRoom(e *flow.Env, p *putRow) bool {
	return e.Pools.HasGrantSlot() && e.Pool.LeasedPages()+uint32(len(p.Pages)) <= c.PagesMax
}

// unqueuePut removes a put from its peer's queue, and the peer from the line if that was the peer's last put.
func (f *Source) unqueuePut(p *putRow, h table.Handle) {
	f.puts.UnqueueAlloc(h)
	f.moved = true
	if f.puts.FirstAlloc(p.Peer) == 0 {
		f.stopWaitingForRoom(p.Peer)
	}
}

// OfferWaiting offers the puts that waited for room below the high-water mark, in order, when pages have been returned.
// If a peer cannot take its put now, the peer loses its turn and gets another when it can, so that no peer delays
// another.
func (f *Source) OfferWaiting(e *flow.Env) {
	for len(f.waitingPeers) > 0 && e.Work.HasBudget() { // What sendQueued leaves over is continued without a further call.
		peer := f.waitingPeers[0]
		h := f.puts.FirstAlloc(peer)
		switch {
		case h == 0 || !hasLaneRoom(e, peer):
			f.stopWaitingForRoom(peer)
		case !f.cfg.hasRoom(e, f.puts.Get(h)):
			return
		default:
			f.sendQueued(e, peer)
		}
	}
}

package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// becomeWaiting queues the put for its peer's lane. A put that was offered before keeps the operation id and the
// lease: the next offer is a retry.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWaiting, 0
	f.puts.Queue(e, h)
	f.pump(e, p.Peer)
}

// becomeWithdrawing queues the put for the commit lane, on which the withdrawal is sent.
func (f *Source) becomeWithdrawing(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWithdrawing, 0
	f.puts.QueueLast(h, !p.lease.Out())
	e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(sourceDeadline, h))
	f.pump(e, p.Peer)
}

// pump advances the puts of one peer that wait for the link, for room below the high-water mark, for the alloc
// lane or for the commit lane.
//
// One step stops or offers only as many puts as it has work for. The remaining puts stay first in the queue, and
// the next call looks at these first, so no put that is to be stopped is offered.
func (f *Source) pump(e *flow.Env, peer table.Handle) {
	if !f.stopLeftAlone(e, peer) {
		return
	}
	if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen {
		for h, cause := f.puts.InVain(e, peer); h != 0 && f.puts.MayStop(e, h); h, cause = f.puts.InVain(e, peer) {
			f.stop(e, h, f.puts.Get(h), cause)
		}
		return
	}
	if !f.stopOrphans(e, peer) {
		return
	}
	for h := f.puts.First(peer); h != 0 && mayTake(e, peer) && f.mayOffer(e, f.puts.Get(h)); h = f.puts.First(peer) {
		if !f.puts.MaySend(e, h) {
			return
		}
		if !f.puts.Get(h).lease.Out() {
			f.unblock(peer) // Not earlier: in a step without work left the peer would lose its turn to the others.
		}
		f.puts.Unqueue(h)
		e.Work.Spend(f.puts.Get(h).Size())
		if f.puts.First(peer) == 0 {
			f.unblock(peer) // A put that was offered before needs no room.
		}
		f.becomeOffering(e, h, e.Links.Take(&e.Env, peer, link.LaneAlloc))
		if mayTake(e, peer) && !f.stopOrphans(e, peer) {
			return
		}
	}
	if h, conn := f.puts.TakeLast(e, peer); h != 0 {
		f.sendWithdrawal(e, h, conn)
	}
}

// stopLeftAlone ends the waiting puts of a peer for which the breaker of the peer is open (a smaller put may
// still be sent). A put that was offered before is withdrawn, and the memory waits for the end of the lease.
// stopLeftAlone returns false if some puts are left for the next step.
func (f *Source) stopLeftAlone(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.LeftAlone(e, peer); h != 0; h = f.puts.LeftAlone(e, peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		f.stop(e, h, f.puts.Get(h), effects.BackedOff)
	}
	return true
}

// mayTake reports whether the peer's alloc lane has a place for one more offer now.
func mayTake(e *flow.Env, peer table.Handle) bool {
	return e.Links.Open(&e.Env, peer, link.LaneAlloc) && put.MayAsk(e, peer)
}

// stopOrphans ends the puts at the head of a queue that were offered to an earlier incarnation of the peer, and
// returns false if some are left for the next step.
func (f *Source) stopOrphans(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.First(peer); h != 0 && f.puts.Get(h).orphaned(e); h = f.puts.First(peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		e.Out.Mark(Marks.OfferOrphaned)
		p := f.puts.Get(h)
		p.Blame(effects.PeerLost, effects.Why{Field: "life", Theirs: "new (it has restarted since the offer)"})
		f.stop(e, h, p, effects.PeerLost)
	}
	return true
}

// orphaned reports whether a put that waits to be offered again was offered to an earlier incarnation of its
// peer.
func (p *outgoing) orphaned(e *flow.Env) bool {
	_, who := e.Links.Of(p.Peer).Link()
	return p.lease.Out() && p.Who != who
}

// mayOffer reports whether the first put of a peer with a free lane may be offered. The put's pages must fit
// below the high-water mark, and no other peer's put may have waited for room before. A put with leased pages
// needs no room. If mayOffer returns false, it has appended the peer to the line; otherwise it changes nothing.
func (f *Source) mayOffer(e *flow.Env, p *outgoing) bool {
	if p.lease.Out() || f.mayPass(p.Peer) && f.cfg.room(e, p) {
		return true
	}
	if f.block(p.Peer) {
		e.Out.Mark(Marks.Backpressure)
	}
	return false
}

// room reports whether the pages of a put may be leased now.
func (c *SourceConfig) room(e *flow.Env, p *outgoing) bool {
	return e.Pools.CanLend() && e.Pool.Lent()+uint32(len(p.Pages)) <= c.PagesMax
}

// unqueue removes a put from its peer's queue, and the peer from the line if that was the peer's last put.
func (f *Source) unqueue(p *outgoing, h table.Handle) {
	f.puts.Unqueue(h)
	f.shifted = true
	if f.puts.First(p.Peer) == 0 {
		f.unblock(p.Peer)
	}
}

// Admit offers the puts that waited for room below the high-water mark, in order, when pages have been returned.
// If a peer cannot take its put now, the peer loses its turn and gets another when it can, so that no peer delays
// another.
func (f *Source) Admit(e *flow.Env) {
	for len(f.line) > 0 && e.Work.Left() { // What pump leaves over is continued without a further call.
		peer := f.line[0]
		h := f.puts.First(peer)
		switch {
		case h == 0 || !mayTake(e, peer):
			f.unblock(peer)
		case !f.cfg.room(e, f.puts.Get(h)):
			return
		default:
			f.pump(e, peer)
		}
	}
}

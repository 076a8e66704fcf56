package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// becomeWaiting puts it in line for its peer's lane; one that was offered before is the same operation, offered again
// under the same lease.
func (f *Source) becomeWaiting(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWaiting, 0
	f.puts.Queue(e, h)
	f.pump(e, p.Peer)
}

// becomeWithdrawing queues it for the commit lane.
func (f *Source) becomeWithdrawing(e *flow.Env, h table.Handle, p *outgoing) {
	p.phase, p.Conn = sourceWithdrawing, 0
	f.puts.QueueLast(h, !p.lease.Out())
	e.Timers.Set(&p.Timer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(sourceDeadline, h))
	f.pump(e, p.Peer)
}

// pump moves on the puts of one peer: what waits for the link, for room to lend and the alloc lane, and for the
// commit lane.
//
// Those that are to be stopped, or offered, are as many a step as it has work for. The others stand first in line
// meanwhile, and whoever comes here looks at those first: none that is to be stopped is offered.
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
			f.unblock(peer) // Not before: a step without work left would have its turn be lost to the others.
		}
		f.puts.Unqueue(h)
		e.Work.Spend(f.puts.Get(h).Size())
		if f.puts.First(peer) == 0 {
			f.unblock(peer) // One that was offered before asks for no room.
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

// stopLeftAlone ends what waits for a peer that is left alone. A put that was offered before is withdrawn; its memory
// waits for the lease's end. It says whether all have ended.
func (f *Source) stopLeftAlone(e *flow.Env, peer table.Handle) bool {
	for h := f.puts.LeftAlone(e, peer); h != 0; h = f.puts.LeftAlone(e, peer) {
		if !f.puts.MayStop(e, h) {
			return false
		}
		f.stop(e, h, f.puts.Get(h), effects.BackedOff)
	}
	return true
}

// mayTake says whether one more put may be offered to a peer now, as far as its lane goes.
func mayTake(e *flow.Env, peer table.Handle) bool {
	return e.Links.Open(&e.Env, peer, link.LaneAlloc) && put.MayAsk(e, peer)
}

// stopOrphans ends the first puts of a queue that were offered to a life of their peer that is over, and says whether
// all have ended.
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

// orphaned says whether a put that waits to be offered again was offered to a life of its peer that is over.
func (p *outgoing) orphaned(e *flow.Env) bool {
	_, who := e.Links.Of(p.Peer).Link()
	return p.lease.Out() && p.Who != who
}

// mayOffer says whether the first put of a peer whose lane is free may be offered, and changes no place in line if so.
// Its pages must fit below the high-water mark, and no other peer's put may have waited for that before it. What is
// leased already asks for nothing.
func (f *Source) mayOffer(e *flow.Env, p *outgoing) bool {
	if p.lease.Out() || f.mayPass(p.Peer) && f.cfg.room(e, p) {
		return true
	}
	if f.block(p.Peer) {
		e.Out.Mark(Marks.Backpressure)
	}
	return false
}

// room says whether what a put offers may be leased now.
func (c *SourceConfig) room(e *flow.Env, p *outgoing) bool {
	return e.Pools.CanLend() && e.Pool.Lent()+uint32(len(p.Pages)) <= c.HighWater
}

// unqueue takes a put out of its peer's queue, and the peer out of the line if it was the last.
func (f *Source) unqueue(p *outgoing, h table.Handle) {
	f.puts.Unqueue(h)
	f.shifted = true
	if f.puts.First(p.Peer) == 0 {
		f.unblock(p.Peer)
	}
}

// Admit offers puts that waited for room below the high-water mark, in order, as pages came back. One whose peer cannot
// take it now loses its turn, and gets another when the peer can: no peer holds up the others.
func (f *Source) Admit(e *flow.Env) {
	for len(f.line) > 0 && e.Work.Left() { // What pump leaves, it comes back to by itself.
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

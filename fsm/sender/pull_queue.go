package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// becomeQueued lets a put wait for its turn on its peer's lane.
func (f *pullSource) becomeQueued(e *step, h table.Handle, p *pullPut) {
	p.phase = pullWaiting
	f.puts.PushBack(&f.queues.at(p.peer).first, h)
	f.queued(e, h, p)
}

// becomeWaiting puts it back to the front of its queue: the same operation, offered again, under the same lease.
func (f *pullSource) becomeWaiting(e *step, h table.Handle, p *pullPut) {
	p.phase, p.conn = pullWaiting, 0
	again(&f.puts, &f.queues.at(p.peer).first, h)
	f.queued(e, h, p)
}

func (f *pullSource) queued(e *step, h table.Handle, p *pullPut) {
	if p.backedOff(e) {
		f.stop(e, h, p, effects.BackedOff)
		return
	}
	f.pump(e, p.peer)
}

// becomeWithdrawing queues it for the commit lane.
func (f *pullSource) becomeWithdrawing(e *step, h table.Handle, p *pullPut) {
	p.phase, p.conn = pullWithdrawing, 0
	f.puts.PushBack(&f.queues.at(p.peer).last, h)
	e.Timers.Set(&p.Timer, e.Now.Add(e.cfg.ReplyTimeout), timerRef(timerPull, h))
	f.pump(e, p.peer)
}

// pump moves on the puts of one peer: what waits for the link, for room to lend and the alloc lane, and for the
// commit lane.
func (f *pullSource) pump(e *step, peer table.Handle) {
	q := f.queues.at(peer)
	if g, cause := e.links.Outbound(peer).Gate(); g != link.GateOpen {
		for h := q.first.Front(); h != 0 && f.puts.Get(h).inVain(e, g); h = q.first.Front() {
			p := f.puts.Get(h)
			p.BlameAs(cause, e.links.Outbound(peer).Why())
			f.stop(e, h, p, cause)
		}
		return
	}
	f.stopOrphans(e, q)
	for h := q.first.Front(); h != 0 && f.mayTake(e, peer) && f.mayOffer(e, f.puts.Get(h)); h = q.first.Front() {
		f.puts.Unlink(&q.first, h)
		if q.first.Len() == 0 {
			f.queues.unblock(peer) // One that was offered before asks for no room.
		}
		f.becomeOffering(e, h, e.links.Take(&e.Env, peer, link.LaneAlloc))
		if f.mayTake(e, peer) {
			f.stopOrphans(e, q)
		}
	}
	if h := q.last.Front(); h != 0 {
		if conn := e.links.Take(&e.Env, peer, link.LaneCommit); conn != 0 {
			f.puts.Unlink(&q.last, h)
			f.sendWithdrawal(e, h, conn)
		}
	}
}

// mayTake says whether one more put may be offered to a peer now, as far as its lane goes.
func (f *pullSource) mayTake(e *step, peer table.Handle) bool {
	return e.links.Open(&e.Env, peer, link.LaneAlloc) && e.mayAsk(peer)
}

// stopOrphans ends the first puts of a queue that were offered to a life of their peer that is over.
func (f *pullSource) stopOrphans(e *step, q *queue) {
	for h := q.first.Front(); h != 0 && f.puts.Get(h).orphaned(e); h = q.first.Front() {
		e.Out.Mark(MarkOfferOrphaned)
		p := f.puts.Get(h)
		p.Blame(effects.PeerLost, effects.Why{Field: "life", Theirs: "new (it has restarted since the offer)"})
		f.stop(e, h, p, effects.PeerLost)
	}
}

// orphaned says whether a put that waits to be offered again was offered to a life of its peer that is over.
func (p *pullPut) orphaned(e *step) bool {
	_, who := e.links.Of(p.peer).Link()
	return p.lease.Out() && p.who != who
}

// mayOffer says whether the first put of a peer whose lane is free may be offered. Its pages must fit below the
// high-water mark, and no other peer's put may have waited for that before it. What is leased already asks for
// nothing.
func (f *pullSource) mayOffer(e *step, p *pullPut) bool {
	switch {
	case p.lease.Out():
		return true
	case f.queues.mayPass(p.peer) && f.room(e, p):
		f.queues.unblock(p.peer)
		return true
	}
	if f.queues.block(p.peer) {
		e.Out.Mark(MarkBackpressure)
	}
	return false
}

// room says whether what a put offers may be leased now. Copies have taken their room before.
func (f *pullSource) room(e *step, p *pullPut) bool {
	return e.Pools.CanLend() && (e.cfg.Offload || e.Pool.Lent()+uint32(len(p.Pages)) <= e.cfg.HighWater)
}

// unqueue takes a put out of its peer's queue, and the peer out of the line if it was the last.
func (f *pullSource) unqueue(p *pullPut, h table.Handle) {
	q := f.queues.at(p.peer)
	f.puts.Unlink(&q.first, h)
	f.shifted = true
	if q.first.Len() == 0 {
		f.queues.unblock(p.peer)
	}
}

// admitOffers sends puts that waited for room, in order. One whose peer cannot take it now loses its turn, and
// gets another when the peer can: no peer holds up the others.
func (f *pullSource) admitOffers(e *step) {
	for len(f.queues.line) > 0 {
		peer := f.queues.line[0]
		h := f.queues.at(peer).first.Front()
		switch {
		case h == 0 || !f.mayTake(e, peer):
			f.queues.unblock(peer)
		case !f.room(e, f.puts.Get(h)):
			return
		default:
			f.pump(e, peer)
		}
	}
}

// backOff leaves a peer's address alone and ends the puts that wait behind the one that was refused.
func (f *pullSource) backOff(e *step, peer table.Handle, code effects.Code, said string) {
	w := e.links.Outbound(peer).Where()
	if !e.breakers.Open(e.Now, w, code, said, e.cfg.Window > 1) {
		return
	}
	e.Out.Mark(MarkBackedOff)
	q := f.queues.at(peer)
	for h := q.first.Front(); h != 0; h = q.first.Front() {
		p := f.puts.Get(h)
		p.Blame(effects.BackedOff, e.breakers.Why(w))
		f.stop(e, h, p, effects.BackedOff)
	}
}

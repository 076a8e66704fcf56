package sender

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// endLease ends a put's lease by its reader's word.
func (s *Sender) endLease(v *env.Env, p *put) {
	if p.lease.EndByWord(v, s.cfg.Leased) {
		p.leaseOver(v)
	}
}

// leaseOver gives the memory back if the outcome left it with us: nobody reads it any more.
func (p *put) leaseOver(v *env.Env) {
	if p.held {
		p.returnPages(v)
	}
}

// OnRevoked handles the proof that nobody reads what ref lent any more. A lease that ended by its reader's word
// meanwhile has no owner.
func (s *Sender) OnRevoked(v *env.Env, l *link.Links, ref kernel.Ref) {
	p := s.puts.Get(ref.Subject)
	if p.lease.Revoked(v) {
		p.leaseOver(v)
		s.answered(v, l, ref.Subject, p)
	}
}

// onOfferOver ends an offer by time alone.
func (s *Sender) onOfferOver(v *env.Env, l *link.Links, h table.Handle) {
	p := s.puts.Get(h)
	v.Out.Mark(MarkOfferOver)
	p.blame(effects.Expired, effects.Why{Field: "pd_pull_pending_ttl", Ours: s.cfg.PullTTL.String(), Theirs: "no answer"})
	if p.lease.EndByTime(v, s.cfg.Leased) {
		p.leaseOver(v)
	}
	switch {
	case p.delivered:
		s.answered(v, l, h, p)
	case p.phase == waiting:
		s.stop(v, l, h, p, effects.Expired)
	default:
		s.deliverHeld(v, p, effects.Expired, p.lease.Out())
	}
}

// takeBack gives the put its outcome unless it has one, and takes its offer back as far as that can be done.
func (s *Sender) takeBack(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code) {
	if !s.cfg.Leased {
		s.endLease(v, p)
	}
	if p.conn == 0 {
		p.phase = offered
	}
	switch {
	case !p.read:
		p.withdrawn = true
	case !p.delivered: // Its reader has everything, whatever became of the answer.
		v.Out.Mark(MarkAckLost)
		code, p.sent = effects.OK, uint32(len(p.ends))
	}
	if !p.delivered {
		s.deliverHeld(v, p, code, p.lease.Out())
	}
	s.answered(v, l, h, p)
}

// answered goes on with a put that has its outcome and whose offer no answer is awaited for: it tells the
// peer if the offer was taken back, waits for the end of the loan, and then is gone.
func (s *Sender) answered(v *env.Env, l *link.Links, h table.Handle, p *put) {
	switch {
	case !p.delivered || p.phase == committing || p.phase == confirming || p.phase == offering && p.conn != 0:
	case p.withdrawn && p.commits && p.attempt > 0:
		p.withdrawn = false
		v.Out.Mark(MarkWithdrawn)
		s.becomeCommitting(v, l, h, p)
	default:
		s.finish(v, l, h, p)
	}
}

// finish ends a put that has nothing left to say, as soon as nothing of it is lent.
func (s *Sender) finish(v *env.Env, l *link.Links, h table.Handle, p *put) {
	if p.lease.Out() {
		v.Timers.Stop(&p.timer) // that of its errand
		p.phase, p.conn = offered, 0
		return
	}
	s.end(v, l, h, p)
}

// maySend says whether the first put of a peer whose lane is free may be sent. To be offered, its pages must
// fit below the high-water mark, and no other peer's put may have waited for that before it.
func (s *Sender) maySend(v *env.Env, peer table.Handle, p *put) bool {
	switch {
	case !s.cfg.Pull, p.lease.Out():
		return true
	case (len(s.hungry) == 0 || s.hungry[0] == peer) && s.room(v, p):
		s.sated(peer)
		return true
	}
	if q := &s.queues[peer.Slot()]; !q.hungry {
		v.Out.Mark(MarkBackpressure)
		q.hungry = true
		s.hungry = append(s.hungry, peer)
	}
	return false
}

func (s *Sender) room(v *env.Env, p *put) bool {
	return v.Pools.CanLend() && (s.cfg.Offload || v.Pool.Lent()+uint32(len(p.pages)) <= s.cfg.HighWater)
}

// unqueue takes a put out of its peer's queue, and the peer out of the hungry if it was the last.
func (s *Sender) unqueue(p *put, h table.Handle) {
	q := &s.queues[p.peer.Slot()]
	s.puts.Unlink(&q.alloc, h)
	s.shifted = true
	if q.alloc.Len() == 0 {
		s.sated(p.peer)
	}
}

func (s *Sender) sated(peer table.Handle) {
	q := &s.queues[peer.Slot()]
	if !q.hungry {
		return
	}
	q.hungry = false
	if i := slices.Index(s.hungry, peer); i >= 0 {
		s.hungry = slices.Delete(s.hungry, i, i+1)
	}
}

// AdmitOffers sends puts that waited for room, in order. One whose peer cannot take it now loses its turn, and
// gets another when the peer can: no peer holds up the others.
func (s *Sender) AdmitOffers(v *env.Env, l *link.Links) {
	for len(s.hungry) > 0 {
		peer := s.hungry[0]
		h := s.queues[peer.Slot()].alloc.Front()
		switch {
		case h == 0 || !l.Open(v, peer, link.LaneAlloc):
			s.sated(peer)
		case !s.room(v, s.puts.Get(h)):
			return
		default:
			s.Pump(v, l, peer)
		}
	}
}

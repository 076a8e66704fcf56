package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A breaker leaves a peer alone that had no memory: until its time is over every put to that peer ends at once,
// so that its engine can go elsewhere instead of waiting in line for the same answer. Then
// one request goes out as a trial, because a lane carries one at a time; what waits behind it goes on
// when it is granted, and ends with it when it is not. (S7, L4.)
//
// It needs no deadline of its own: nothing waits for its end.
type breaker struct {
	peer  table.Handle // whose it is; the next peer in this slot starts with a closed one
	until effects.Time
}

func (b *breaker) open(peer table.Handle, now effects.Time) bool {
	return b.peer == peer && now < b.until
}

// full says whether an answer means that the peer has nothing to give, to anybody, for the time being.
func full(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}

// backOff opens the peer's breaker and ends the puts that wait behind the one that was refused.
func (s *Sender) backOff(v *env.Env, l *link.Links, peer table.Handle) {
	if s.cfg.BreakerTTL <= 0 {
		return
	}
	v.Out.Mark(MarkBackedOff)
	q := &s.queues[peer.Slot()]
	q.breaker = breaker{peer: peer, until: v.Now.Add(s.cfg.BreakerTTL)}
	for h := q.alloc.Front(); h != 0; h = q.alloc.Front() {
		p := s.puts.Get(h)
		s.puts.Unlink(&q.alloc, h)
		s.deliver(v, h, p, effects.BackedOff)
		s.end(v, l, h, p)
	}
}

package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A breaker leaves a receiver alone that had no memory: until its time is over every put to it ends at once,
// so that its engine can go elsewhere instead of waiting in line for the same answer. Then
// one request goes out as a trial, because a lane carries one at a time; what waits behind it goes on
// when it is granted, and ends with it when it is not. (S7, L4.)
//
// It is of an address, not of a link: links come and go, and one may have to make room for another while
// the breaker is open. It needs no deadline of its own, because nothing waits for its end.
type breaker struct {
	where link.Where
	until effects.Time
	code  effects.Code // that it answered with
	said  string       // and its words
}

// breakers are the addresses left alone, those that were told so longest ago first.
type breakers struct {
	slab  table.Slab[breaker]
	index table.Index
	order table.List
}

// breakersPerPeer times the number of peers is how many addresses are remembered; beyond that the oldest is forgotten.
const breakersPerPeer = 4

func newBreakers(peersMax uint32) breakers {
	return breakers{slab: table.NewSlab[breaker](int(breakersPerPeer * peersMax))}
}

func hashOf(seed uint64, w link.Where) uint64 {
	return table.Hash(seed^uint64(w.InitPort)<<16^uint64(w.AllocPort), []byte(w.Host))
}

func (b *breakers) find(hash uint64, w link.Where) table.Handle {
	for p := b.index.Seek(hash); p.Found(); p = b.index.Next(p) {
		if b.slab.Get(p.Handle()).where == w {
			return p.Handle()
		}
	}
	return 0
}

func (b *breakers) forget(hash uint64, h table.Handle) {
	b.index.Remove(hash, h)
	b.slab.Unlink(&b.order, h)
	b.slab.Remove(h)
}

// leftAlone says whether the breaker of an address is open.
func (s *Sender) leftAlone(v *env.Env, w link.Where) bool {
	if s.breakers.slab.Len() == 0 {
		return false
	}
	hash := hashOf(s.seed, w)
	h := s.breakers.find(hash, w)
	if h == 0 {
		return false
	}
	if v.Now < s.breakers.slab.Get(h).until {
		return true
	}
	s.breakers.forget(hash, h)
	return false
}

// leftAloneFor is what is said of a put to an address that is left alone.
func (s *Sender) leftAloneFor(w link.Where) effects.Why {
	b := s.breakers.slab.Get(s.breakers.find(hashOf(s.seed, w), w))
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_alloc_fail_backoff_ttl", Ours: s.cfg.BreakerTTL.String(),
		Theirs: b.code.String(), Said: b.said,
	}
}

// full says whether an answer means that the receiver has nothing to give, to anybody, for the time being.
func full(code effects.Code) bool {
	return code == effects.NoMemory || code == effects.TooMany || code == effects.Draining
}

// queued goes on with a put that was given its turn on its peer's lane, unless that peer is to be left alone: it may
// have said that it is full since the put was given, and since the put was sent, if its answer was lost. So nobody
// waits for a lane while its breaker is open.
func (s *Sender) queued(v *env.Env, l *link.Links, h table.Handle, p *put) {
	p.reached = l.Outbound(p.peer).Attempt()
	if s.leftAlone(v, l.Outbound(p.peer).Where()) {
		v.Out.Mark(MarkPeerBackedOff)
		p.blame(effects.BackedOff, s.leftAloneFor(p.where))
		s.stop(v, l, h, p, effects.BackedOff)
		return
	}
	s.Pump(v, l, p.peer)
}

// backOff opens the breaker of a peer's address and ends the puts that wait behind the one that was refused.
func (s *Sender) backOff(v *env.Env, l *link.Links, peer table.Handle, code effects.Code, said string) {
	if s.cfg.BreakerTTL <= 0 {
		return
	}
	v.Out.Mark(MarkBackedOff)
	w, b := l.Outbound(peer).Where(), &s.breakers
	hash := hashOf(s.seed, w)
	if h := b.find(hash, w); h != 0 {
		b.forget(hash, h)
	}
	if b.slab.Full() {
		oldest := b.order.Front()
		b.forget(hashOf(s.seed, b.slab.Get(oldest).where), oldest)
	}
	h, x := b.slab.Add()
	*x = breaker{where: w, until: v.Now.Add(s.cfg.BreakerTTL), code: code, said: said}
	b.index.Add(hash, h)
	b.slab.PushBack(&b.order, h)
	q := &s.queues[peer.Slot()]
	for h := q.alloc.Front(); h != 0; h = q.alloc.Front() {
		s.puts.Get(h).blame(effects.BackedOff, s.leftAloneFor(w))
		s.stop(v, l, h, s.puts.Get(h), effects.BackedOff)
	}
}

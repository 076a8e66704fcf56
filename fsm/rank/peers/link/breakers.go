package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// breaker is the circuit breaker of a receiver's address. A breaker opens when the receiver had no memory for a put.
// While the breaker is open, every put to the address that needs at least as many chunks ends at once, so that the
// engine can use another receiver instead of waiting in the queue for the same refusal. A put of fewer chunks may fit
// and is sent. If the receiver refuses the smaller put too, the size of that put counts from then on.
//
// When the time of the breaker is over, a single request is sent as a trial, however many requests the lane could
// carry. Puts that wait behind the trial go on if the trial is granted, and end with the trial if the trial is refused.
// Requests that are in flight when the breaker opens end with their own replies (S7 and L4 in docs/safety.md).
//
// A breaker belongs to an address and not to a link, because a link may be evicted to make room for another while the
// breaker is open. A breaker needs no timer, because nothing waits for the end of its time.
//
// Example: a receiver refuses a put of 8 chunks because its pool is full, and the breaker opens for 2 s. A put of 16
// chunks ends at once, and a put of 4 chunks is sent. After 2 s the next put of 8 chunks is the trial.
type breaker struct {
	where Where
	until effects.Time     // end of the time for which the breaker is open
	open  effects.Duration // for how long the breaker was opened last
	code  effects.Code     // the code of the refusal
	said  string           // the reason that the receiver stated
	least uint32           // chunks of the put that was refused for lack of memory; 0: the receiver accepts no put
	// The breaker stays after its time until a trial is answered: one request at a time is sent.
	trial bool
}

// Breakers holds the circuit breakers of receivers' addresses, the oldest first.
type Breakers struct {
	ttl   effects.Duration `snap:"share"` // for how long a breaker opens; 0: breakers never open
	most  effects.Duration `snap:"share"` // limit of the doubling after failed trials; 0: the time is not doubled
	seed  uint64
	slab  table.Slab[breaker]
	index table.Index
	order table.List
	opens uint64 `snap:"skip"` // how often a breaker opened; pending puts are examined again only after a change
}

// NewBreakers returns circuit breakers that stay open for ttl, or never open if ttl is 0. They remember the given
// number of addresses; beyond that the oldest is evicted. The seed is a secret.
func NewBreakers(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return new(Breakers).Emptied(ttl, addresses, seed)
}

// Emptied returns the same as NewBreakers, but reuses the memory of b, which must not be used afterwards.
func (b *Breakers) Emptied(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return Breakers{ttl: ttl, seed: seed, slab: b.slab.Emptied(addresses), index: b.index.Emptied()}
}

// Growing returns a copy of b with breakers that double their time whenever a trial fails, up to most.
func (b Breakers) Growing(most effects.Duration) Breakers {
	b.most = most
	return b
}

func (b *Breakers) hash(w Where) uint64 {
	return table.Hash(b.seed^uint64(w.InitPort)<<16^uint64(w.AllocPort), []byte(w.Host))
}

// find returns the breaker of an address, or zero.
func (b *Breakers) find(w Where) table.Handle {
	for p := b.index.Seek(b.hash(w)); p.Found(); p = b.index.Next(p) {
		if b.slab.Get(p.Handle()).where == w {
			return p.Handle()
		}
	}
	return 0
}

// forget removes a breaker.
func (b *Breakers) forget(h table.Handle) {
	b.index.Remove(b.hash(b.slab.Get(h).where), h)
	b.slab.Unlink(&b.order, h)
	b.slab.Remove(h)
}

// LeftAlone reports whether the breaker of an address is open for a put of the given number of chunks. A breaker
// without a trial is removed when its time is over.
func (b *Breakers) LeftAlone(now effects.Time, w Where, chunks uint32) bool {
	if b.slab.Len() == 0 {
		return false
	}
	h := b.find(w)
	if h == 0 {
		return false
	}
	if now < b.slab.Get(h).until {
		return chunks >= b.slab.Get(h).least
	}
	if !b.slab.Get(h).trial {
		b.forget(h)
	}
	return false
}

// OnTrial reports whether the address has a breaker with a trial that no reply has ended yet.
func (b *Breakers) OnTrial(w Where) bool {
	if b.slab.Len() == 0 {
		return false
	}
	h := b.find(w)
	return h != 0 && b.slab.Get(h).trial
}

// Try reports whether a request may be sent to an address, which is the case unless the breaker is open. If the address
// has a breaker, this request is the trial, and the breaker stays open for further requests for as long as the trial
// may take (patience).
func (b *Breakers) Try(now effects.Time, w Where, patience effects.Duration) bool {
	if b.LeftAlone(now, w, 0) {
		return false
	}
	if h := b.find(w); h != 0 {
		b.slab.Get(h).until = now.Add(patience)
	}
	return true
}

// Heard removes the breaker of an address that has replied, at any time.
func (b *Breakers) Heard(w Where) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.find(w); h != 0 {
		b.forget(h)
	}
}

// Answered removes the breaker of an address after the reply to a trial. If the reply says that the receiver is full
// again, the caller opens the breaker again with Open.
func (b *Breakers) Answered(now effects.Time, w Where) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.find(w); h != 0 && b.slab.Get(h).trial && now >= b.slab.Get(h).until {
		b.forget(h)
	}
}

// Why returns the explanation for a put that fails because the breaker of its address is open.
func (b *Breakers) Why(w Where) effects.Why {
	x := b.slab.Get(b.find(w))
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_alloc_fail_backoff_ttl", Ours: b.ttl.String(),
		Theirs: x.code.String(), Said: x.said,
	}
}

// Opens returns how often a breaker has opened.
func (b *Breakers) Opens() uint64 { return b.opens }

// Open opens the breaker of an address for puts of at least the given number of chunks. Open reports false if breakers
// are disabled. If it reports true, the caller ends the puts that wait for the address. The argument trial says that a
// trial follows, which is needed where a lane carries several requests at a time; a lane with one request in flight has
// the same effect without a trial.
func (b *Breakers) Open(
	now effects.Time, w Where, code effects.Code, said string, trial bool, least uint32,
) bool {
	if b.ttl <= 0 {
		return false
	}
	open := b.ttl
	if h := b.find(w); h != 0 {
		if x := b.slab.Get(h); b.most > 0 {
			if now < x.until {
				return true // requests that were sent before the breaker opened fail for the same reason
			}
			open = min(2*x.open, b.most)
		}
		b.forget(h)
	}
	if b.slab.Full() {
		b.forget(b.order.Front())
	}
	h, x := b.slab.Add()
	*x = breaker{where: w, until: now.Add(open), open: open, code: code, said: said, trial: trial, least: least}
	b.opens++
	b.index.Add(b.hash(w), h)
	b.slab.PushBack(&b.order, h)
	return true
}

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
	addr      PeerAddr
	until     effects.Time     // end of the time for which the breaker is open
	openTime  effects.Duration // for how long the breaker was opened last
	code      effects.Code     // the code of the refusal
	reason    string           // the reason that the receiver stated
	minChunks uint32           // chunks of the put that was refused for lack of memory; 0: the receiver accepts no put
	// The breaker stays after its time until a trial is answered: one request at a time is sent.
	trial bool
}

// Breakers holds the circuit breakers of receivers' addresses, the oldest first.
type Breakers struct {
	ttl      effects.Duration `snap:"share"` // for how long a breaker opens; 0: breakers never open
	ttlMax   effects.Duration `snap:"share"` // limit of the doubling after failed trials; 0: the time is not doubled
	seed     uint64
	slab     table.Slab[breaker]
	byAddr   table.Index
	byAge    table.List
	openings uint64 `snap:"skip"` // how often a breaker opened; pending puts are examined again only after a change
}

// NewBreakers returns circuit breakers that stay open for ttl, or never open if ttl is 0. They remember the given
// number of addresses; beyond that the oldest is evicted. The seed is a secret.
func NewBreakers(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return new(Breakers).Recycle(ttl, addresses, seed)
}

// Recycle returns the same as NewBreakers, but reuses the memory of b, which must not be used afterwards.
func (b *Breakers) Recycle(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return Breakers{ttl: ttl, seed: seed, slab: b.slab.Recycle(addresses), byAddr: b.byAddr.Recycle()}
}

// WithDoubling returns a copy of b with breakers that double their time whenever a trial fails, up to most.
func (b Breakers) WithDoubling(ttlMax effects.Duration) Breakers {
	b.ttlMax = ttlMax
	return b
}

func (b *Breakers) hashAddr(w PeerAddr) uint64 {
	return table.Hash(b.seed^uint64(w.InitPort)<<16^uint64(w.AllocPort), []byte(w.Host))
}

// findBreaker returns the breaker of an address, or zero.
func (b *Breakers) findBreaker(w PeerAddr) table.Handle {
	for p := b.byAddr.Find(b.hashAddr(w)); p.Found(); p = b.byAddr.Next(p) {
		if b.slab.Get(p.Handle()).addr == w {
			return p.Handle()
		}
	}
	return 0
}

// removeBreaker removes a breaker.
func (b *Breakers) removeBreaker(h table.Handle) {
	b.byAddr.Remove(b.hashAddr(b.slab.Get(h).addr), h)
	b.slab.Unlink(&b.byAge, h)
	b.slab.Remove(h)
}

// IsOpen reports whether the breaker of an address is open for a put of the given number of chunks. A breaker
// without a trial is removed when its time is over.
func (b *Breakers) IsOpen(now effects.Time, w PeerAddr, chunks uint32) bool {
	if b.slab.Len() == 0 {
		return false
	}
	h := b.findBreaker(w)
	if h == 0 {
		return false
	}
	if now < b.slab.Get(h).until {
		return chunks >= b.slab.Get(h).minChunks
	}
	if !b.slab.Get(h).trial {
		b.removeBreaker(h)
	}
	return false
}

// HasTrial reports whether the address has a breaker with a trial that no reply has ended yet.
func (b *Breakers) HasTrial(w PeerAddr) bool {
	if b.slab.Len() == 0 {
		return false
	}
	h := b.findBreaker(w)
	return h != 0 && b.slab.Get(h).trial
}

// AllowRequest reports whether a request may be sent to an address, which is the case unless the breaker is open. If
// the address has a breaker, this request is the trial, and the breaker stays open for further requests for as long as
// the trial may take (trialTime).
func (b *Breakers) AllowRequest(now effects.Time, w PeerAddr, trialTime effects.Duration) bool {
	if b.IsOpen(now, w, 0) {
		return false
	}
	if h := b.findBreaker(w); h != 0 {
		b.slab.Get(h).until = now.Add(trialTime)
	}
	return true
}

// Close removes the breaker of an address that has replied, at any time.
func (b *Breakers) Close(w PeerAddr) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.findBreaker(w); h != 0 {
		b.removeBreaker(h)
	}
}

// CloseTrial removes the breaker of an address after the reply to a trial. If the reply says that the receiver is full
// again, the caller opens the breaker again with Trip.
func (b *Breakers) CloseTrial(now effects.Time, w PeerAddr) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.findBreaker(w); h != 0 && b.slab.Get(h).trial && now >= b.slab.Get(h).until {
		b.removeBreaker(h)
	}
}

// OpenReason returns the explanation for a put that fails because the breaker of its address is open.
func (b *Breakers) OpenReason(w PeerAddr) effects.Why {
	x := b.slab.Get(b.findBreaker(w))
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_alloc_fail_backoff_ttl", Ours: b.ttl.String(),
		Theirs: x.code.String(), Said: x.reason,
	}
}

// CountOpenings returns how often a breaker has opened.
func (b *Breakers) CountOpenings() uint64 { return b.openings }

// Trip opens the breaker of an address for puts of at least the given number of chunks. Trip reports false if breakers
// are disabled. If it reports true, the caller ends the puts that wait for the address. The argument trial says that a
// trial follows, which is needed where a lane carries several requests at a time; a lane with one request in flight has
// the same effect without a trial.
func (b *Breakers) Trip(
	now effects.Time, w PeerAddr, code effects.Code, reason string, trial bool, minChunks uint32,
) bool {
	if b.ttl <= 0 {
		return false
	}
	open := b.ttl
	if h := b.findBreaker(w); h != 0 {
		if x := b.slab.Get(h); b.ttlMax > 0 {
			if now < x.until {
				return true // requests that were sent before the breaker opened fail for the same reason
			}
			open = min(2*x.openTime, b.ttlMax)
		}
		b.removeBreaker(h)
	}
	if b.slab.Full() {
		b.removeBreaker(b.byAge.Front())
	}
	h, x := b.slab.Add()
	*x = breaker{addr: w, until: now.Add(open), openTime: open, code: code, reason: reason, trial: trial, minChunks: minChunks}
	b.openings++
	b.byAddr.Add(b.hashAddr(w), h)
	b.slab.PushBack(&b.byAge, h)
	return true
}

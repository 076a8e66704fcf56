package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A breaker leaves a receiver alone that had no memory: until its time is over every put to it that needs as much ends
// at once, so that its engine can go elsewhere instead of waiting in line for the same answer. A put of fewer chunks
// than were refused may fit, and goes out; if it is refused as well, its size counts from then on. Then
// one request goes out as a trial, however many its lane could carry; what waits behind it goes on
// when it is granted, and ends with it when it is not. What is in flight when it opens ends by its own
// answer. (S7, L4.)
//
// It is of an address, not of a link: links come and go, and one may have to make room for another while
// the breaker is open. It needs no deadline of its own, because nothing waits for its end.
type breaker struct {
	where Where
	until effects.Time
	open  effects.Duration // for which it was opened last
	code  effects.Code     // that it answered with
	said  string           // and its words
	least uint32           // chunks of the put that it answered so, for which it had no memory; 0: it takes none
	trial bool             // when its time is over it stays, until something else is answered: one request goes at a time
}

// Breakers are the addresses that are left alone, those that said so longest ago first.
type Breakers struct {
	ttl   effects.Duration `snap:"share"` // how long; 0: no address is
	most  effects.Duration `snap:"share"` // how long one that fails at each trial, for which its time is doubled
	seed  uint64
	slab  table.Slab[breaker]
	index table.Index
	order table.List
	opens uint64 `snap:"skip"` // how often one opened: who waits is looked at again only after that
}

// NewBreakers returns breakers that stay open for ttl, or never open if it is 0, of so many addresses: beyond that the
// oldest is forgotten. Seed is a secret.
func NewBreakers(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return new(Breakers).Emptied(ttl, addresses, seed)
}

// Emptied returns what NewBreakers does, in the memory of b, which is not used any more.
func (b *Breakers) Emptied(ttl effects.Duration, addresses int, seed uint64) Breakers {
	return Breakers{ttl: ttl, seed: seed, slab: b.slab.Emptied(addresses), index: b.index.Emptied()}
}

// Growing returns b with breakers that stay open twice as long each time that a trial fails, up to most.
func (b Breakers) Growing(most effects.Duration) Breakers {
	b.most = most
	return b
}

func (b *Breakers) hash(w Where) uint64 {
	return table.Hash(b.seed^uint64(w.InitPort)<<16^uint64(w.AllocPort), []byte(w.Host))
}

func (b *Breakers) find(w Where) table.Handle {
	for p := b.index.Seek(b.hash(w)); p.Found(); p = b.index.Next(p) {
		if b.slab.Get(p.Handle()).where == w {
			return p.Handle()
		}
	}
	return 0
}

func (b *Breakers) forget(h table.Handle) {
	b.index.Remove(b.hash(b.slab.Get(h).where), h)
	b.slab.Unlink(&b.order, h)
	b.slab.Remove(h)
}

// LeftAlone says whether the breaker of an address is open for a put of so many chunks. One whose time is over is
// forgotten.
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

// OnTrial says whether an address that was left alone has answered nothing since.
func (b *Breakers) OnTrial(w Where) bool {
	if b.slab.Len() == 0 {
		return false
	}
	h := b.find(w)
	return h != 0 && b.slab.Get(h).trial
}

// Try says whether an address may be asked: it is not left alone. Where it was, this one question is its trial, and
// others leave it alone for as long as that may take.
func (b *Breakers) Try(now effects.Time, w Where, patience effects.Duration) bool {
	if b.LeftAlone(now, w, 0) {
		return false
	}
	if h := b.find(w); h != 0 {
		b.slab.Get(h).until = now.Add(patience)
	}
	return true
}

// Heard ends the breaker of an address that has answered, whenever it does.
func (b *Breakers) Heard(w Where) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.find(w); h != 0 {
		b.forget(h)
	}
}

// Answered ends a trial. If the answer is that it is full once more, the breaker opens again.
func (b *Breakers) Answered(now effects.Time, w Where) {
	if b.slab.Len() == 0 {
		return
	}
	if h := b.find(w); h != 0 && b.slab.Get(h).trial && now >= b.slab.Get(h).until {
		b.forget(h)
	}
}

// Why is what is said of a put to an address that is left alone.
func (b *Breakers) Why(w Where) effects.Why {
	x := b.slab.Get(b.find(w))
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_alloc_fail_backoff_ttl", Ours: b.ttl.String(),
		Theirs: x.code.String(), Said: x.said,
	}
}

// Opens counts the times that a breaker has opened.
func (b *Breakers) Opens() uint64 { return b.opens }

// Open leaves an address alone from now on, for puts of at least so many chunks, and says whether it does: those that
// wait for it are to end then. A trial follows where a lane carries several requests; elsewhere the lane sees to that.
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
				return true // What was asked before it opened fails for the same reason.
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

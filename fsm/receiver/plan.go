package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/store"
)

// A plan is what becomes of each key of a batch: it is ready, it shares the page of the same key before it, or it
// gets a page of the grant to come. It holds until the next one is made.
type plan struct {
	spots   []spot
	hashes  []uint64 // of the keys
	lengths []uint32 // of the pages needed
	// unpromised: a chunk was ready, and there was no room to promise it.
	unpromised bool
}

// A spot is what becomes of one key.
type spot struct {
	entry  store.Entry
	ready  bool
	repeat int // the position of the same key earlier in the batch, or -1
	page   int // position in the grant
}

// fresh is the number of pages that the batch needs.
func (p *plan) fresh() uint32 { return uint32(len(p.lengths)) }

// what is a hash of the keys, in order, and of how many tokens the last one has.
func (p *plan) what(lastTokens uint32) uint64 { return sum(p.hashes, lastTokens) }

// planFor finds out what becomes of each key, beginning a fill for each new one, which unplan takes back or a
// landing ends. A key that stands twice in the batch shares one page. With dedup, a chunk that is ready needs none,
// if a claim on it can be kept until its request comes: else it would be promised and might be gone.
func (l *landings) planFor(s *store.Store, class int, keys [][]byte, lastTokens uint32, dedup bool) *plan {
	p := &l.plan
	p.spots, p.lengths, p.hashes = p.spots[:0], p.lengths[:0], p.hashes[:0]
	l.planned++
	claimable := s.ClaimsLeft(class)
	p.unpromised = false
	for i, key := range keys {
		hash := s.Hash(key)
		p.hashes = append(p.hashes, hash)
		length := uint32(l.cfg.pageBytes)
		if i == len(keys)-1 {
			length = uint32(l.cfg.tokenBytes * uint64(lastTokens)) // checked on arrival
		}
		h := s.Find(hash, key)
		// Whatever became of a key, it has an entry from its first place in the batch on.
		if first, again := s.Noted(h, l.planned); again {
			x := p.spots[first]
			x.repeat = first
			if !x.ready {
				p.lengths[x.page] = max(p.lengths[x.page], length)
			}
			p.spots = append(p.spots, x)
			continue
		}
		x := spot{repeat: -1}
		if h != 0 && dedup {
			_, x.ready = s.Ready(h)
			x.entry = h
			if x.ready && claimable == 0 {
				x.ready, p.unpromised = false, true
			} else if x.ready {
				claimable--
			}
		}
		if !x.ready {
			x.entry = s.BeginFill(hash, key)
			x.page = len(p.lengths)
			p.lengths = append(p.lengths, length)
		}
		s.Note(x.entry, l.planned, i)
		p.spots = append(p.spots, x)
	}
	return p
}

// fits says whether a class may have the pages that the batch needs now, and has them free. That comes last: nothing
// else may stand in the way when a cache gives up chunks for it. It does not give up what the batch found ready, which
// is promised next.
func (p *plan) fits(v *env.Env, s *store.Store, class int) bool {
	n := p.fresh()
	if n == 0 {
		return true
	}
	if !v.Pools.FitsShare(v.Pool, class, n) || !v.Pools.CanLend() {
		return false
	}
	stay := uint32(0)
	for i := range p.spots {
		if x := &p.spots[i]; x.ready && x.repeat < 0 && s.Touch(x.entry) {
			stay++
		}
	}
	return s.MakeRoom(v, v.Pool, n, stay)
}

// unplan takes back the fills that planFor began.
func (p *plan) unplan(v *env.Env, s *store.Store) {
	for i := range p.spots {
		if x := &p.spots[i]; !x.ready && x.repeat < 0 {
			s.EndFill(x.entry, effects.Page{}, false)
			s.Settle(x.entry, v)
		}
	}
}

// claimReady claims for a request the chunks that are here already, and adds their indexes to a list.
func (p *plan) claimReady(v *env.Env, s *store.Store, class int, request uint64, already []int64) []int64 {
	for i := range p.spots {
		if x := &p.spots[i]; x.ready {
			v.Out.Mark(MarkAlreadySent)
			already = append(already, int64(i))
			if x.repeat < 0 {
				s.Claim(x.entry, class, request, v)
			}
		}
	}
	return already
}

const more = 0x9E3779B97F4A7C15

// sum names keys whose hashes are known: in order, with how many tokens the last one has. A retry names those of its
// first attempt.
func sum(hashes []uint64, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, hash := range hashes {
		sum = sum*more + hash
	}
	return sum
}

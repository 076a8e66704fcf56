package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Plan is what becomes of each key of a batch: it is ready, it shares the page of the same key before it, or it
// gets a page of the grant to come. It holds until the next one is made.
type Plan struct {
	Spots   []Spot
	Hashes  []uint64 // of the keys
	Lengths []uint32 // of the pages needed
	// Unpromised: a chunk was ready, and there was no room to promise it.
	Unpromised bool
	begun      []table.Handle // bundles
}

// A Spot is what becomes of one key.
type Spot struct {
	entry  store.Entry
	Ready  bool
	Repeat int // the position of the same key earlier in the batch, or -1
	Page   int // position in the grant
}

// Fills says that the page that the key gets is for it first: a repetition shares it.
func (x *Spot) Fills() bool { return !x.Ready && x.Repeat < 0 }

// Fresh is the number of pages that the batch needs.
func (p *Plan) Fresh() uint32 { return uint32(len(p.Lengths)) }

// What is a hash of the keys, in order, and of how many tokens the last one has.
func (p *Plan) What(lastTokens uint32) uint64 { return Sum(p.Hashes, lastTokens) }

// Plan finds out what becomes of each key, beginning a fill for each new one, which Unplan or a landing ends.
// A key that stands twice in the batch shares one page. With dedup, a chunk that is ready needs none, if a claim on it
// can be kept until its request comes: else it would be promised and might be gone.
func (l *Landings) Plan(s *store.Store, class int, keys [][]byte, lastTokens uint32, dedup bool) *Plan {
	p := &l.plan
	p.Spots, p.Lengths, p.Hashes = p.Spots[:0], p.Lengths[:0], p.Hashes[:0]
	s.NewBatch()
	claimable := s.ClaimsLeft(class)
	p.Unpromised = false
	for i, key := range keys {
		hash := s.Hash(key)
		p.Hashes = append(p.Hashes, hash)
		length := uint32(l.cfg.PageBytes)
		if i == len(keys)-1 {
			length = uint32(l.cfg.TokenBytes * uint64(lastTokens)) // checked on arrival
		}
		h := s.Find(hash, key)
		// Whatever became of a key, it has an entry from its first place in the batch on.
		if first, again := s.Noted(h); again {
			x := p.Spots[first]
			x.Repeat = first
			if !x.Ready {
				p.Lengths[x.Page] = max(p.Lengths[x.Page], length)
			}
			p.Spots = append(p.Spots, x)
			continue
		}
		x := Spot{Repeat: -1}
		if h != 0 && dedup {
			_, x.Ready = s.Ready(h)
			x.entry = h
			if x.Ready && claimable == 0 {
				x.Ready, p.Unpromised = false, true
			} else if x.Ready {
				claimable--
			}
		}
		if !x.Ready {
			x.entry = s.BeginFill(hash, key)
			x.Page = len(p.Lengths)
			p.Lengths = append(p.Lengths, length)
		}
		s.Note(x.entry, i)
		p.Spots = append(p.Spots, x)
	}
	return p
}

// Fits says whether a class may have the pages of a pool that the batch needs now, and has them free. That comes last:
// nothing else may stand in the way when a cache gives up chunks for it. It does not give up what the batch found
// ready, which is promised next.
func (p *Plan) Fits(v *env.Env, s *store.Store, of *memory.Pool, class int) bool {
	n := p.Fresh()
	if n == 0 {
		return true
	}
	if !v.Pools.FitsShare(of, class, n) || !v.Pools.CanLend() {
		return false
	}
	stay := uint32(0)
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Ready && x.Repeat < 0 {
			stay += s.Touch(v, x.entry, of)
		}
	}
	return s.MakeRoom(v, of, n, stay)
}

// Unplan takes back the fills that planFor began.
func (p *Plan) Unplan(v *env.Env, s *store.Store) {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Fills() {
			s.EndFill(x.entry, effects.Page{}, false)
			s.Settle(x.entry, v)
		}
	}
}

// ClaimReady claims for a request the chunks that are here already, and adds their indexes to a list.
func (p *Plan) ClaimReady(v *env.Env, s *store.Store, class int, request uint64, already []int64) []int64 {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Ready {
			v.Out.Mark(Marks.AlreadySent)
			already = append(already, int64(i))
			if x.Repeat < 0 {
				s.Claim(x.entry, class, request, v)
			}
		}
	}
	return already
}

const more = 0x9E3779B97F4A7C15

// Sum names keys whose hashes are known: in order, with how many tokens the last one has. A retry names those of its
// first attempt.
func Sum(hashes []uint64, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, hash := range hashes {
		sum = sum*more + hash
	}
	return sum
}

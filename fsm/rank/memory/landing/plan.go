package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Plan says for each key of a batch whether the chunk is ready, shares the page of the same key earlier in the batch,
// or gets a page of the grant that follows. A plan is valid until the next plan is made.
type Plan struct {
	Spots   []Spot
	Hashes  []uint64 // hashes of the keys
	Lengths []uint32 // lengths in bytes of the pages that are needed
	// Unpromised reports that a chunk was ready and could not be promised, because the class has no claim left.
	Unpromised bool
	begun      []table.Handle // the bundles that the plan began
}

// A Spot is the plan for one key.
type Spot struct {
	entry  store.Entry
	Ready  bool
	Repeat int // the position of the same key earlier in the batch, or -1
	Page   int // the position of the page in the grant
}

// Fills reports whether the key gets a page of its own. A repetition of a key shares the page of the first one.
func (x *Spot) Fills() bool { return !x.Ready && x.Repeat < 0 }

// Fresh returns the number of pages that the batch needs.
func (p *Plan) Fresh() uint32 { return uint32(len(p.Lengths)) }

// What returns a hash of the keys, in order, and of the token count of the last chunk.
func (p *Plan) What(lastTokens uint32) uint64 { return Sum(p.Hashes, lastTokens) }

// Plan plans each key of a batch. Plan begins a fill for each key that needs a page; Unplan or the landing ends the
// fill. A key that occurs twice in the batch has one page. With dedup, a chunk that is ready needs no page if a claim
// can keep the chunk until the request comes. Without room for the claim the chunk gets a new page, because the chunk
// would be promised and might be gone when the request comes.
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
			length = uint32(l.cfg.TokenBytes * uint64(lastTokens)) // checked when the message arrives
		}
		h := s.Find(hash, key)
		// Each key has an entry from its first position in the batch on, whatever was planned for the key.
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

// Fits reports whether a class may have the pages of the pool that the batch needs, and whether these pages are free or
// can be made free by evicting cached chunks. Fits must be the last check, so that no chunk is evicted for a batch that
// is refused for another reason. Chunks that the batch found ready are not evicted, because these chunks are promised
// next.
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

// Unplan ends the fills that Plan began.
func (p *Plan) Unplan(v *env.Env, s *store.Store) {
	for i := range p.Spots {
		if x := &p.Spots[i]; x.Fills() {
			s.EndFill(x.entry, effects.Page{}, false)
			s.Settle(x.entry, v)
		}
	}
}

// ClaimReady claims for a request the chunks that are ready already, and appends their indexes to already.
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

// more is the odd multiplier with which Sum mixes the hashes.
const more = 0x9E3779B97F4A7C15

// Sum returns a hash of keys, given the hashes of the keys: of the order, and of the token count of the last chunk. A
// retry must have the same sum as the first attempt.
func Sum(hashes []uint64, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, hash := range hashes {
		sum = sum*more + hash
	}
	return sum
}

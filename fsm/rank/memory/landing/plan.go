package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Plan says for each key of a batch whether the chunk is ready, shares the page of the same key earlier in the batch,
// or gets a page of the grant that follows. A plan is valid until the next plan is made.
type Plan struct {
	Keys    []KeyPlan
	Hashes  []uint64      // hashes of the keys
	Lengths []uint32      // lengths in bytes of the pages that are needed
	Sums    []effects.Sum // checksums of the contents of these pages, as far as the source has stated them
	// Unpromised reports that a chunk was ready and could not be promised, because the class has no claim left.
	Unpromised   bool
	Tenant       effects.Tenant // the tenant of the keys: all keys of a batch are of one tenant
	begunBundles []table.Handle // the bundles that the plan began
}

// A KeyPlan is the plan for one key.
type KeyPlan struct {
	entry       store.Entry
	Ready       bool
	DuplicateOf int // the position of the same key earlier in the batch, or -1
	Page        int // the position of the page in the grant
}

// NeedsPage reports whether the key gets a page of its own. A repetition of a key shares the page of the first one.
func (x *KeyPlan) NeedsPage() bool { return !x.Ready && x.DuplicateOf < 0 }

// tenantOf returns the tenant of the keys of a batch.
func tenantOf(keys [][]byte) effects.Tenant {
	if len(keys) == 0 {
		return 0
	}
	return effects.Tenant(protocol.TenantOf(keys[0]))
}

// PagesNeeded returns the number of pages that the batch needs.
func (p *Plan) PagesNeeded() uint32 { return uint32(len(p.Lengths)) }

// ContentHash returns a hash of the keys, in order, and of the token count of the last chunk.
func (p *Plan) ContentHash(lastTokens uint32) uint64 { return ContentHash(p.Hashes, lastTokens) }

// PlanKeys plans each key of a batch. PlanKeys begins a fill for each key that needs a page; EndFills or the landing
// ends the fill. A key that occurs twice in the batch has one page. With dedup, a chunk that is ready needs no page if
// a claim can keep the chunk until the request comes. Without room for the claim the chunk gets a new page, because the
// chunk would be promised and might be gone when the request comes. sums are the checksums that the source of the
// chunks states for them, or empty. The chunks are those of the trust domain of the class (S32).
func (l *Landings) PlanKeys(v *env.Env, s *store.Store, class int, keys [][]byte, sums []uint64, lastTokens uint32, dedup bool) *Plan {
	p := &l.planBuf
	p.Keys, p.Lengths, p.Sums, p.Hashes = p.Keys[:0], p.Lengths[:0], p.Sums[:0], p.Hashes[:0]
	s.BeginBatch()
	claimable := s.ClaimsLeft(class)
	p.Unpromised = false
	realm := v.RealmOf(class)
	p.Tenant = tenantOf(keys)
	for i, key := range keys {
		hash := s.HashIn(realm, key)
		p.Hashes = append(p.Hashes, hash)
		length := uint32(l.cfg.PageBytes)
		if i == len(keys)-1 {
			length = uint32(l.cfg.TokenBytes * uint64(lastTokens)) // checked when the message arrives
		}
		h := s.Find(hash, key)
		// Each key has an entry from its first position in the batch on, whatever was planned for the key.
		if first, repeated := s.NotedPosition(h); repeated {
			x := p.Keys[first]
			x.DuplicateOf = first
			if !x.Ready && p.Lengths[x.Page] != length {
				// Which of the two lengths is stored is up to the source, and a checksum is of one of them.
				p.Lengths[x.Page], p.Sums[x.Page] = max(p.Lengths[x.Page], length), 0
			}
			p.Keys = append(p.Keys, x)
			continue
		}
		x := KeyPlan{DuplicateOf: -1}
		if h != 0 && dedup {
			_, x.Ready = s.ReadyPage(h)
			x.entry = h
			if x.Ready && claimable == 0 {
				x.Ready, p.Unpromised = false, true
			} else if x.Ready {
				claimable--
			}
		}
		if !x.Ready {
			if x.entry = s.BeginFill(hash, key); realm != 0 {
				s.MarkForeign(x.entry)
			}
			x.Page = len(p.Lengths)
			p.Lengths, p.Sums = append(p.Lengths, length), append(p.Sums, effects.SumAt(sums, i))
		}
		s.NotePosition(x.entry, i)
		p.Keys = append(p.Keys, x)
	}
	return p
}

// FitsPool reports whether a class and the tenant may have the pages of the pool that the batch needs, and whether these pages are
// free or can be made free by evicting cached chunks. FitsPool must be the last check, so that no chunk is evicted for
// a batch that is refused for another reason. Chunks that the batch found ready are not evicted, because these chunks
// are promised next.
func (p *Plan) FitsPool(v *env.Env, s *store.Store, pool *memory.Pool, class int) bool {
	n := p.PagesNeeded()
	if n == 0 {
		return true
	}
	if !v.Pools.FitsShare(pool, class, n) || !pool.FitsTenant(p.Tenant, n) || !v.Pools.HasGrantSlot() {
		return false
	}
	spared := uint32(0)
	for i := range p.Keys {
		if x := &p.Keys[i]; x.Ready && x.DuplicateOf < 0 {
			spared += s.TouchEntry(v, x.entry, pool)
		}
	}
	return s.MakeRoom(v, pool, n, spared)
}

// EndFills ends the fills that PlanKeys began.
func (p *Plan) EndFills(v *env.Env, s *store.Store) {
	for i := range p.Keys {
		if x := &p.Keys[i]; x.NeedsPage() {
			s.EndFill(x.entry, effects.Page{}, false)
			s.DropUnused(x.entry, v)
		}
	}
}

// ClaimReady claims for a request the chunks that are ready already, and appends their indexes to already.
func (p *Plan) ClaimReady(v *env.Env, s *store.Store, class int, request uint64, already []int64) []int64 {
	for i := range p.Keys {
		if x := &p.Keys[i]; x.Ready {
			v.Out.Mark(Marks.AlreadySent)
			already = append(already, int64(i))
			if x.DuplicateOf < 0 {
				s.ClaimEntry(x.entry, class, request, v)
			}
		}
	}
	return already
}

// hashMultiplier is the odd multiplier with which ContentHash mixes the hashes.
const hashMultiplier = 0x9E3779B97F4A7C15

// ContentHash returns a hash of keys, given the hashes of the keys: of the order, and of the token count of the last
// chunk. A retry must have the same sum as the first attempt.
func ContentHash(hashes []uint64, lastTokens uint32) uint64 {
	sum := uint64(lastTokens)
	for _, hash := range hashes {
		sum = sum*hashMultiplier + hash
	}
	return sum
}

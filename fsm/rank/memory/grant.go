package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// grant gives one peer the right to write pages, or to read them (a read lease, read_lease.go).
//
// The low 16 bits of a grant's id are its slot in the table, so the grant is found without a search. The bits above are
// a number from a secret shuffle, for this slot, of how often the slot was used: a peer that has seen ids cannot
// predict the next id (rule M2). A slot does not repeat an id before its 2^48th grant. At a million grants per second
// in a slot that takes 8.9 years, and slots take turns, so in practice the time is many times longer. After that the
// slot goes on in another order (prng.Shuffle), so an id that was kept for so long names a present grant with a
// probability of 2^-48. Two grants that exist at the same time never have the same id, because they have different
// slots.
type grant struct {
	id          effects.GrantID
	useCount    uint64     // how often the slot was used
	owner       kernel.Ref `snap:"skip"` // the row to notify; skipped because the owner's own tables name the grant
	isReadLease bool
	class       int
	poolIndex   int // index of the pool of the pages; unused in a read grant: the pages may lie in several pools
	pages       []effects.Page
	openPages   uint32 // write grant: pages that have not landed and are still granted or in quarantine
	quarantined bool
}

// slotBits is the number of bits of a grant id that are the slot.
const slotBits = 16

// GrantsMax is the maximum number of grants of a rank at a time.
const GrantsMax = 1<<slotBits - 1

// findGrant returns the grant with this id, or nil if the grant is over or never existed (rule M2: compared for
// equality).
func (ps *Pools) findGrant(id effects.GrantID) *grant {
	g := ps.grants.Get(ps.handleOf(id))
	if g == nil || g.id != id {
		return nil
	}
	return g
}

func (ps *Pools) handleOf(id effects.GrantID) table.Handle { return ps.grants.At(SlotOf(id)) }

// SlotOf returns the slot of a grant: a small number, unique among the present grants.
func SlotOf(id effects.GrantID) int32 { return int32(id & GrantsMax) }

// CanGrantPages reports whether n pages of p can be granted to class now: the pages are free, the share of the class
// allows them, and the table has a free slot.
func (ps *Pools) CanGrantPages(p *Pool, class int, n uint32) bool {
	return n <= p.FreePages() && ps.FitsShare(p, class, n) && !ps.grants.Full()
}

// FitsShare reports whether the share of the class allows n more pages of p, and one more grant (MayAddGrant). Pages of
// the class that have landed count as well as granted pages while the peer of another class is present, because that
// peer could otherwise find the pool full. The group of the class has a share, too (FitsOrigin). Class 0 is this rank's
// engine, limited only by PoolConfig.EngineShare.
func (ps *Pools) FitsShare(p *Pool, class int, n uint32) bool {
	if class == 0 {
		return p.usedByClass[0]+n <= p.engineShare
	}
	if p.classShare < p.TotalPages() && ps.isContested(class) && p.usedByClass[class]+p.landedByClass.counts[class]+n > p.classShare {
		return false
	}
	return p.usedByClass[class]+n <= p.classShare && ps.MayAddGrant(class) && ps.FitsOrigin(p, class, n)
}

// ShareUse returns the number of pages that count against the share of a class: pages granted to the class, and while
// another class is present also pages that landed for the class.
func (ps *Pools) ShareUse(p *Pool, class int) uint32 {
	if p.classShare < p.TotalPages() && ps.isContested(class) {
		return p.usedByClass[class] + p.landedByClass.counts[class]
	}
	return p.usedByClass[class]
}

// MayAddGrant reports whether the class may have one more grant. A class may not have more grants than it leaves free
// in the table, so a single peer can use at most about half of the table.
func (ps *Pools) MayAddGrant(class int) bool {
	return ps.grantsByClass[class] < ps.grants.Max()-ps.grants.Len()
}

// CanEverGrant reports whether n pages could be granted to one class if the whole pool were free. A batch for which
// CanEverGrant is false must be refused at once, because waiting cannot help.
func (p *Pool) CanEverGrant(n uint32) bool { return n <= p.TotalPages() && n <= p.classShare }

// ClassLimit returns the limit of pages that one class can be granted.
func (p *Pool) ClassLimit() uint32 { return min(p.TotalPages(), p.classShare) }

// IsGrantTableFull reports whether the table of grants is full.
func (ps *Pools) IsGrantTableFull() bool { return ps.grants.Full() }

// CountGrants returns the number of write and read grants, in force or in quarantine.
func (ps *Pools) CountGrants() int { return ps.grants.Len() }

// GrantedPages returns the number of pages under write grants in force.
func (p *Pool) GrantedPages() uint32 { return p.openPages - p.quarantinedPages }

// QuarantinedPages returns the number of pages under write grants in quarantine: ended, but not yet settled.
func (p *Pool) QuarantinedPages() uint32 { return p.quarantinedPages }

// GrantPages takes len(lengths) free pages of p and grants them to class for writing. GrantPages returns the grant's id
// and the pages, with the given lengths and with the checksums that their contents are to have (sums may be nil). The
// slice belongs to the table and is valid until the grant ends. The caller must have checked CanGrantPages. The owner is
// notified of each page that lands, and of the proof that the peer cannot write any more.
func (ps *Pools) GrantPages(
	p *Pool, class int, lengths []uint32, sums []effects.Sum, owner kernel.Ref,
) (effects.GrantID, []effects.Page) {
	g := ps.addGrant(p, owner)
	g.class, g.openPages = class, uint32(len(lengths))
	for i, length := range lengths {
		index, pg := p.popFree()
		pg.grant, pg.position = g.id, uint32(i)
		if len(sums) > 0 {
			pg.sum = sums[i]
		}
		g.pages = append(g.pages, effects.Page{Pool: p.id, Index: index, Length: length, Sum: pg.sum, Generation: pg.generation})
	}
	ps.addUsed(p, class, g.openPages)
	ps.grantsByClass[class]++
	p.openPages += g.openPages
	return g.id, g.pages
}

// StateSum records the checksum that the content of the page at a position of the grant is to have. If another checksum
// was recorded before, none is known.
func (ps *Pools) StateSum(id effects.GrantID, position int, sum effects.Sum) {
	g := ps.findGrant(id)
	if known := g.pages[position].Sum; known != 0 && known != sum {
		sum = 0
	}
	g.pages[position].Sum = sum
	ps.pools[g.poolIndex].pageAt(g.pages[position].Index).sum = sum
}

// addGrant inserts a grant over pages of p. The table must have a free slot. addGrant skips the id 0, which stands for
// no grant.
func (ps *Pools) addGrant(p *Pool, owner kernel.Ref) *grant {
	h, x := ps.grants.Add()
	*x = grant{useCount: x.useCount + 1, owner: owner, poolIndex: p.index, pages: x.pages[:0]}
	for lane := uint16(h.Slot()); ; x.useCount++ {
		if x.id = effects.GrantID(ps.idOrder.Nth(lane, x.useCount)<<slotBits | uint64(lane)); x.id != 0 {
			return x
		}
	}
}

// removeGrant frees the slot of a grant.
func (ps *Pools) removeGrant(x *grant) {
	x.pages = table.TrimSlice(x.pages)
	ps.grants.Remove(ps.handleOf(x.id))
}

// OwnerOf returns the row that owns the grant, or the zero Ref (owner OwnerNone) if the grant is over.
func (ps *Pools) OwnerOf(id effects.GrantID) kernel.Ref {
	if g := ps.findGrant(id); g != nil {
		return g.owner
	}
	return kernel.Ref{}
}

// PagesOf returns the pages of the grant, including pages that have landed, or nil if the grant is over.
func (ps *Pools) PagesOf(id effects.GrantID) []effects.Page {
	if g := ps.findGrant(id); g != nil {
		return g.pages
	}
	return nil
}

// CountOpenPages returns the number of the grant's pages that have not landed; 0 if the grant is over.
func (ps *Pools) CountOpenPages(id effects.GrantID) uint32 {
	if g := ps.findGrant(id); g != nil {
		return g.openPages
	}
	return 0
}

// GrantState reports whether the grant exists, and whether it is in quarantine. It is for inspection only, not for
// decisions of a step.
func (ps *Pools) GrantState(id effects.GrantID) (open, quarantined bool) {
	g := ps.findGrant(id)
	return g != nil, g != nil && g.quarantined
}

// LandPage turns the write grant on a page into a reference, in the same step, so that the page with the whole chunk is
// never free in between (rule M1). LandPage returns the page's position in the grant. LandPage returns false if the
// grant is over, or if the page is not or no longer under this grant, or has another generation (rule M2). In a claimed
// pool no reference is added, because the claim already is a reference.
func (ps *Pools) LandPage(id effects.GrantID, pg effects.Page) (uint32, bool) {
	g := ps.findGrant(id)
	if g == nil {
		return 0, false
	}
	p := &ps.pools[g.poolIndex]
	if pg.Pool != p.id || !p.hasPage(pg.Index) {
		return 0, false
	}
	state := p.pageAt(pg.Index)
	if state.grant != id || state.generation != pg.Generation {
		return 0, false
	}
	state.grant = 0
	if !p.claimed { // The claim already is a reference.
		state.refs++
		ps.countLanded(p, state, g.class)
	}
	ps.uncountOpenPage(p, g)
	return state.position, true
}

// uncountOpenPage takes a page out of the counts of a write grant.
func (ps *Pools) uncountOpenPage(p *Pool, g *grant) {
	g.openPages--
	p.freedCount++
	p.openPages--
	ps.dropUsed(p, g.class, 1)
	if g.quarantined {
		p.quarantinedPages--
	}
}

// IsPageOpen reports whether the page at this position has not landed and is still under the grant.
func (ps *Pools) IsPageOpen(id effects.GrantID, position int) bool {
	g := ps.findGrant(id)
	return g != nil && ps.pools[g.poolIndex].pageAt(g.pages[position].Index).grant == id
}

// QuarantineGrant records that the grant has ended by decision of this rank, but that the peer may still be able to
// touch the pages. The pages stay as they are until EndGrant (rule M1). QuarantineGrant panics if the grant is over or
// already in quarantine.
func (ps *Pools) QuarantineGrant(id effects.GrantID) {
	g := ps.findGrant(id)
	if g == nil || g.quarantined {
		panic(fmt.Sprintf("BUG: grant %d cannot go into quarantine", id))
	}
	g.quarantined = true
	if g.isReadLease {
		return
	}
	ps.pools[g.poolIndex].quarantinedPages += g.openPages
}

// EndGrant removes a grant whose peer is proven unable to touch the pages any more. Pages of a write grant that never
// landed become free, and their number is returned. Pages of a read grant become free if nothing else uses the pages.
// EndGrant panics if the grant is over.
func (ps *Pools) EndGrant(id effects.GrantID) uint32 {
	g := ps.findGrant(id)
	if g == nil {
		panic(fmt.Sprintf("BUG: grant %d ended twice", id))
	}
	if g.isReadLease {
		ps.endReadLease(g)
		return 0
	}
	freed := ps.ReclaimOpenPages(id)
	ps.grantsByClass[g.class]--
	ps.removeGrant(g)
	ps.freedCount++
	return freed
}

// ReclaimOpenPages takes back the pages of a write grant that never landed, and returns their number. The peer must be
// proven unable to write. The grant keeps its slot until EndGrant.
func (ps *Pools) ReclaimOpenPages(id effects.GrantID) uint32 {
	g := ps.findGrant(id)
	p, freed := &ps.pools[g.poolIndex], g.openPages
	for _, pg := range g.pages {
		if state := p.pageAt(pg.Index); state.grant == id {
			state.grant = 0
			ps.uncountOpenPage(p, g)
			if p.freeIfUnused(pg.Index); !state.isFree() && !p.claimed {
				ps.countLanded(p, state, g.class) // Share made the page readable under its grant; the page stays readable.
			}
		}
	}
	return freed
}

// AddRef adds a reference to a page that is still under a write grant. The reader accepts that the content may change
// (rule M5, trust_uncommitted).
func (p *Pool) AddRef(pg effects.Page) { p.pageOf(pg).refs++ }

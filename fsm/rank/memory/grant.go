package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A grant lets one peer write pages, or read them (loan.go). Its id holds its slot in the low 16 bits, so that it is
// found without a search, below what a secret shuffle makes of how often the slot was used: nobody who has seen ids can
// tell another. A slot repeats none before its 2^48th grant; at a million a second in that one slot these are 8.9
// years, and as slots take turns, many times that. Even then it goes on in another order (draw.Shuffle), so what
// somebody kept for so long names a grant that stands with a chance of 2^-48; and no two that stand have one slot.
type grant struct {
	id          effects.GrantID
	nth         uint64     // how often the slot was used
	owner       kernel.Ref `snap:"skip"` // an owner's own tables name it by the id
	loan        bool
	class       int
	pool        int // of its pages, among the pools; of a loan each page says
	pages       []effects.Page
	open        uint32 // pages that are still granted or in quarantine
	quarantined bool
}

const slotBits = 16

// GrantsMax is the most grants a rank can have at a time.
const GrantsMax = 1<<slotBits - 1

func (ps *Pools) find(id effects.GrantID) *grant {
	g := ps.grants.Get(ps.handle(id))
	if g == nil || g.id != id {
		return nil
	}
	return g
}

func (ps *Pools) handle(id effects.GrantID) table.Handle { return ps.grants.At(SlotOf(id)) }

// SlotOf is the grant's slot: a small number that no other live grant has.
func SlotOf(id effects.GrantID) int32 { return int32(id & GrantsMax) }

// Fits says whether n pages of p could be granted to class now.
func (ps *Pools) Fits(p *Pool, class int, n uint32) bool {
	return n <= p.Free() && ps.FitsShare(p, class, n) && !ps.grants.Full()
}

// FitsShare says whether the class may have n pages more of p, and one grant more: of grants no class has more than it
// leaves. What landed of it counts with what is granted while others are present, who would find the pool full.
func (ps *Pools) FitsShare(p *Pool, class int, n uint32) bool {
	if class == 0 {
		return p.used[0]+n <= p.own
	}
	if p.share < p.Total() && ps.contested(class) && p.used[class]+p.landed.of[class]+n > p.share {
		return false
	}
	return p.used[class]+n <= p.share && ps.MayGrant(class)
}

// ShareUse is how many pages count against the share of a class: those granted to it, and while other classes are
// present those that landed of it.
func (ps *Pools) ShareUse(p *Pool, class int) uint32 {
	if p.share < p.Total() && ps.contested(class) {
		return p.used[class] + p.landed.of[class]
	}
	return p.used[class]
}

// MayGrant says whether the class may have one grant more: none has more than it leaves.
func (ps *Pools) MayGrant(class int) bool { return ps.held[class] < ps.grants.Max()-ps.grants.Len() }

// Ever says whether n pages could be granted to one class at all.
func (p *Pool) Ever(n uint32) bool { return n <= p.Total() && n <= p.share }

// MostOfOne is how many pages could be granted to one class at the most.
func (p *Pool) MostOfOne() uint32 { return min(p.Total(), p.share) }

// GrantsFull says that there may be no more.
func (ps *Pools) GrantsFull() bool { return ps.grants.Full() }

// Grants is the number of grants of both kinds, those in quarantine included.
func (ps *Pools) Grants() int { return ps.grants.Len() }

// Granted counts the pages under write grants that are in force.
func (p *Pool) Granted() uint32 { return p.open - p.quarantined }

// Quarantined counts the pages under write grants that ended but are not settled.
func (p *Pool) Quarantined() uint32 { return p.quarantined }

// Grant takes len(lengths) free pages of p and grants them to class for writing. The
// returned pages are the table's, valid until the grant ends. Fits must hold. Its
// owner hears of what lands and of the proof that nobody writes any more.
func (ps *Pools) Grant(p *Pool, class int, lengths []uint32, owner kernel.Ref) (effects.GrantID, []effects.Page) {
	g := ps.add(p, owner)
	g.class, g.open = class, uint32(len(lengths))
	for i, length := range lengths {
		index, pg := p.pop()
		pg.grant, pg.position = g.id, uint32(i)
		g.pages = append(g.pages, effects.Page{Pool: p.id, Index: index, Length: length, Generation: pg.generation})
	}
	p.used[class] += g.open
	ps.held[class]++
	p.open += g.open
	return g.id, g.pages
}

// add begins a grant of pages of p; there must be a slot.
func (ps *Pools) add(p *Pool, owner kernel.Ref) *grant {
	h, x := ps.grants.Add()
	*x = grant{nth: x.nth + 1, owner: owner, pool: p.place, pages: x.pages[:0]}
	for lane := uint16(h.Slot()); ; x.nth++ {
		if x.id = effects.GrantID(ps.hidden.Nth(lane, x.nth)<<slotBits | uint64(lane)); x.id != 0 {
			return x
		}
	}
}

// remove ends the life of a grant's slot.
func (ps *Pools) remove(x *grant) {
	x.pages = table.Shed(x.pages)
	ps.grants.Remove(ps.handle(x.id))
}

// Owner is whose a grant is; the zero Ref, which nobody is, if it is over.
func (ps *Pools) Owner(id effects.GrantID) kernel.Ref {
	if g := ps.find(id); g != nil {
		return g.owner
	}
	return kernel.Ref{}
}

// Pages are the grant's pages, landed ones included; nil if the grant is over.
func (ps *Pools) Pages(id effects.GrantID) []effects.Page {
	if g := ps.find(id); g != nil {
		return g.pages
	}
	return nil
}

// OpenPages is the number of the grant's pages that have not landed.
func (ps *Pools) OpenPages(id effects.GrantID) uint32 {
	if g := ps.find(id); g != nil {
		return g.open
	}
	return 0
}

// GrantIs says whether pages of a grant are out, and whether they are in quarantine; to look at only.
func (ps *Pools) GrantIs(id effects.GrantID) (open, quarantined bool) {
	g := ps.find(id)
	return g != nil, g != nil && g.quarantined
}

// Land turns the write grant on one page into a reference, in one step. It returns
// the page's position in the grant, and false when the page is not, or no more,
// under this grant.
func (ps *Pools) Land(id effects.GrantID, pg effects.Page) (uint32, bool) {
	g := ps.find(id)
	if g == nil {
		return 0, false
	}
	p := &ps.list[g.pool]
	if pg.Pool != p.id || !p.has(pg.Index) {
		return 0, false
	}
	state := p.at(pg.Index)
	if state.grant != id || state.generation != pg.Generation {
		return 0, false
	}
	state.grant = 0
	if !p.claimed { // Whoever claimed it has it already.
		state.refs++
		p.landed.add(state, g.class)
	}
	p.shrink(g)
	return state.position, true
}

func (p *Pool) shrink(g *grant) {
	g.open--
	p.freed++
	p.open--
	p.used[g.class]--
	if g.quarantined {
		p.quarantined--
	}
}

// Under says whether the page at this position is still under the grant.
func (ps *Pools) Under(id effects.GrantID, position int) bool {
	g := ps.find(id)
	return g != nil && ps.list[g.pool].at(g.pages[position].Index).grant == id
}

// Quarantine notes that the grant ended, but that its writer or reader may not have: its
// pages stay as they are until End.
func (ps *Pools) Quarantine(id effects.GrantID) {
	g := ps.find(id)
	if g == nil || g.quarantined {
		panic(fmt.Sprintf("BUG: grant %d cannot go into quarantine", id))
	}
	g.quarantined = true
	if g.loan {
		return
	}
	ps.list[g.pool].quarantined += g.open
}

// End ends a grant whose writer or reader is proven quiet. Pages that never landed become
// free; their number is returned. Pages that were lent become free if nobody has them.
func (ps *Pools) End(id effects.GrantID) uint32 {
	g := ps.find(id)
	if g == nil {
		panic(fmt.Sprintf("BUG: grant %d ended twice", id))
	}
	if g.loan {
		ps.endLoan(g)
		return 0
	}
	freed := ps.Clear(id)
	ps.held[g.class]--
	ps.remove(g)
	ps.freed++
	return freed
}

// Clear takes back the pages of a write grant that never landed, whose writer is proven quiet, and returns their
// number. The grant keeps its place until End.
func (ps *Pools) Clear(id effects.GrantID) uint32 {
	g := ps.find(id)
	p, freed := &ps.list[g.pool], g.open
	for _, pg := range g.pages {
		if state := p.at(pg.Index); state.grant == id {
			state.grant = 0
			p.shrink(g)
			if p.maybeFree(pg.Index); !state.free() && !p.claimed {
				p.landed.add(state, g.class) // It was readable under its grant, and stays so.
			}
		}
	}
	return freed
}

// Share adds a reference to a page that is still under a write grant: its reader
// accepts that it may change (rule M5, trust_uncommitted).
func (p *Pool) Share(pg effects.Page) { p.of(pg).refs++ }

package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/draw"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A grant lets one peer write pages, or read them (loan.go). Its id holds its slot in the low 16 bits, so that it is found
// without a search, below what a secret shuffle makes of how often the slot was used: nobody who has seen ids can tell
// another. A slot repeats none before its 2^48th grant; at a million a second in that one slot these are 8.9 years, and as
// slots take turns, many times that. Even then it goes on in another order (draw.Shuffle), so what somebody
// kept for so long names a grant that stands with a chance of 2^-48; and no two that stand have one slot.
type grant struct {
	id          effects.GrantID
	nth         uint64     // how often the slot was used
	owner       kernel.Ref `snap:"skip"` // an owner's own tables name it by the id
	loan        bool
	class       int
	pages       []effects.Page
	open        uint32 // pages that are still granted or in quarantine
	quarantined bool
}

const slotBits = 16

// GrantsMax is the most grants a pool can have at a time.
const GrantsMax = 1<<slotBits - 1

type grants struct {
	slab        table.Slab[grant]
	hidden      draw.Shuffle
	used        []uint32 // for each class: pages granted or in quarantine
	held        []int    // for each class: write grants
	landed      landed
	share       uint32
	open        uint32
	quarantined uint32
	lent        uint32 // pages under read grants; one counts as often as it is lent
	lentMost    uint32
}

func newGrants(n, classes int, share uint32) grants {
	return grants{slab: table.NewSlab[grant](min(n, GrantsMax)), used: make([]uint32, classes), held: make([]int, classes),
		landed: newLanded(classes), share: share}
}

func (g *grants) find(id effects.GrantID) *grant {
	gr := g.slab.Get(g.handle(id))
	if gr == nil || gr.id != id {
		return nil
	}
	return gr
}

func (g *grants) handle(id effects.GrantID) table.Handle { return g.slab.At(SlotOf(id)) }

// SlotOf is the grant's slot: a small number that no other live grant has.
func SlotOf(id effects.GrantID) int32 { return int32(id & GrantsMax) }

// Fits says whether n pages could be granted to class now.
func (p *Pool) Fits(class int, n uint32) bool {
	return n <= p.Free() && p.FitsShare(class, n) && !p.grants.slab.Full()
}

// FitsShare says whether the class may have n pages more, and one grant more: of grants no class has more than it
// leaves. What landed of it counts with what is granted while others are present, who would find the pool full.
func (p *Pool) FitsShare(class int, n uint32) bool {
	g := &p.grants
	if g.share < p.Total() && g.landed.contested(class) && g.used[class]+g.landed.of[class]+n > g.share {
		return false
	}
	return g.used[class]+n <= g.share && g.held[class] < g.slab.Max()-g.slab.Len()
}

// Ever says whether n pages could be granted to one class at all.
func (p *Pool) Ever(n uint32) bool { return n <= p.Total() && n <= p.grants.share }

// MostOfOne is how many pages could be granted to one class at the most.
func (p *Pool) MostOfOne() uint32 { return min(p.Total(), p.grants.share) }

// ClassUse is the number of pages that are granted to or in quarantine for class.
func (p *Pool) ClassUse(class int) uint32 { return p.grants.used[class] }

// Grants is the number of grants of both kinds, those in quarantine included.
func (p *Pool) Grants() int { return p.grants.slab.Len() }

// Granted counts the pages under write grants that are in force.
func (p *Pool) Granted() uint32 { return p.grants.open - p.grants.quarantined }

// Quarantined counts the pages under write grants that ended but are not settled.
func (p *Pool) Quarantined() uint32 { return p.grants.quarantined }

// Grant takes len(lengths) free pages and grants them to class for writing. The
// returned pages are the pool's, valid until the grant ends. Fits must hold. Its
// owner hears of what lands and of the proof that nobody writes any more.
func (p *Pool) Grant(class int, lengths []uint32, owner kernel.Ref) (effects.GrantID, []effects.Page) {
	g := p.grants.add(owner)
	g.class, g.open = class, uint32(len(lengths))
	for i, length := range lengths {
		index, pg := p.pop()
		pg.grant, pg.position = g.id, uint32(i)
		g.pages = append(g.pages, effects.Page{Pool: p.id, Index: index, Length: length, Generation: pg.generation})
	}
	p.grants.used[class] += g.open
	p.grants.held[class]++
	p.grants.open += g.open
	return g.id, g.pages
}

// add begins a grant; there must be a slot.
func (g *grants) add(owner kernel.Ref) *grant {
	h, x := g.slab.Add()
	*x = grant{nth: x.nth + 1, owner: owner, pages: x.pages[:0]}
	for lane := uint16(h.Slot()); ; x.nth++ {
		if x.id = effects.GrantID(g.hidden.Nth(lane, x.nth)<<slotBits | uint64(lane)); x.id != 0 {
			return x
		}
	}
}

// remove ends the life of a grant's slot.
func (g *grants) remove(x *grant) {
	x.pages = table.Shed(x.pages)
	g.slab.Remove(g.handle(x.id))
}

// Hide makes grant ids such that nobody without this shuffle can guess them. It is called before the first grant.
func (p *Pool) Hide(by draw.Shuffle) { p.grants.hidden = by }

// Owner is whose a grant is; the zero Ref, which nobody is, if it is over.
func (p *Pool) Owner(id effects.GrantID) kernel.Ref {
	if g := p.grants.find(id); g != nil {
		return g.owner
	}
	return kernel.Ref{}
}

// Pages are the grant's pages, landed ones included; nil if the grant is over.
func (p *Pool) Pages(id effects.GrantID) []effects.Page {
	if g := p.grants.find(id); g != nil {
		return g.pages
	}
	return nil
}

// OpenPages is the number of the grant's pages that have not landed.
func (p *Pool) OpenPages(id effects.GrantID) uint32 {
	if g := p.grants.find(id); g != nil {
		return g.open
	}
	return 0
}

// GrantIs says whether pages of a grant are out, and whether they are in quarantine; to look at only.
func (p *Pool) GrantIs(id effects.GrantID) (open, quarantined bool) {
	g := p.grants.find(id)
	return g != nil, g != nil && g.quarantined
}

// Land turns the write grant on one page into a reference, in one step. It returns
// the page's position in the grant, and false when the page is not, or no more,
// under this grant.
func (p *Pool) Land(id effects.GrantID, pg effects.Page) (uint32, bool) {
	g := p.grants.find(id)
	if g == nil || pg.Pool != p.id || pg.Index >= p.Total() {
		return 0, false
	}
	state := &p.pages[pg.Index]
	if state.grant != id || state.generation != pg.Generation {
		return 0, false
	}
	state.grant = 0
	state.refs++
	p.grants.landed.add(state, g.class)
	p.shrink(g)
	return state.position, true
}

func (p *Pool) shrink(g *grant) {
	g.open--
	p.freed++
	p.grants.open--
	p.grants.used[g.class]--
	if g.quarantined {
		p.grants.quarantined--
	}
}

// Under says whether the page at this position is still under the grant.
func (p *Pool) Under(id effects.GrantID, position int) bool {
	g := p.grants.find(id)
	return g != nil && p.pages[g.pages[position].Index].grant == id
}

// Quarantine notes that the grant ended, but that its writer or reader may not have: its
// pages stay as they are until End.
func (p *Pool) Quarantine(id effects.GrantID) {
	g := p.grants.find(id)
	if g == nil || g.quarantined {
		panic(fmt.Sprintf("BUG: grant %d cannot go into quarantine", id))
	}
	g.quarantined = true
	if g.loan {
		return
	}
	p.grants.quarantined += g.open
}

// End ends a grant whose writer or reader is proven quiet. Pages that never landed become
// free; their number is returned. Pages that were lent become free if nobody has them.
func (p *Pool) End(id effects.GrantID) uint32 {
	g := p.grants.find(id)
	if g == nil {
		panic(fmt.Sprintf("BUG: grant %d ended twice", id))
	}
	if g.loan {
		p.endLoan(g)
		return 0
	}
	freed := p.Clear(id)
	p.grants.held[g.class]--
	p.grants.remove(g)
	p.freed++
	return freed
}

// Clear takes back the pages of a write grant that never landed, whose writer is proven quiet, and returns their
// number. The grant keeps its place until End.
func (p *Pool) Clear(id effects.GrantID) uint32 {
	g := p.grants.find(id)
	freed := g.open
	for _, pg := range g.pages {
		if state := &p.pages[pg.Index]; state.grant == id {
			state.grant = 0
			p.shrink(g)
			if p.maybeFree(pg.Index); !state.free() {
				p.grants.landed.add(state, g.class) // It was readable under its grant, and stays so.
			}
		}
	}
	return freed
}

// Share adds a reference to a page that is still under a write grant: its reader
// accepts that it may change (rule M5, trust_uncommitted).
func (p *Pool) Share(pg effects.Page) { p.of(pg).refs++ }

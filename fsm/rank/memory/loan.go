package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A loan is a read grant. Its pages keep their generation, their references and their content. A page can be lent to
// several readers at a time, but never while a peer may write the page (rule M1).

// Lent returns the number of pages under read grants, in force or in quarantine. A page counts once for each of its
// read grants.
func (p *Pool) Lent() uint32 { return p.lent }

// LentMost returns the maximum that Lent has had since the start.
func (p *Pool) LentMost() uint32 { return p.lentMost }

// CanLend reports whether the table of grants has a free slot.
func (ps *Pools) CanLend() bool { return !ps.grants.Full() }

// Lend grants pages that are in use for reading, until End, and returns the grant's id. The pages may lie in several
// pools, because a prefix of chunks may. The caller must have checked CanLend. The owner is notified of the proof that
// the peer does not read any more. Lend panics if a page is free or has a write grant (rule M1).
func (ps *Pools) Lend(pages []effects.Page, owner kernel.Ref) effects.GrantID {
	g := ps.add(&ps.list[0], owner)
	g.loan = true
	for _, page := range pages {
		p := ps.Of(page)
		pg := p.of(page)
		if pg.free() || pg.grant != 0 {
			panic(fmt.Sprintf("BUG: page %d is leased while it is free or being written", page.Index))
		}
		pg.loans++
		p.lent++
		p.lentMost = max(p.lentMost, p.lent)
		g.pages = append(g.pages, page)
	}
	return g.id
}

// endLoan removes a read grant. Each of its pages becomes free if nothing else uses it.
func (ps *Pools) endLoan(g *grant) {
	for _, page := range g.pages {
		p := ps.Of(page)
		p.at(page.Index).loans--
		p.lent--
		p.maybeFree(page.Index)
	}
	ps.remove(g)
	ps.freed++
}

package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A loan is a read grant: its pages keep their life, their references and their content. They can be
// lent to several readers at a time, but never while one may write.

// Lent counts the pages under read grants, those in quarantine included. A page counts as often as it is lent.
func (p *Pool) Lent() uint32 { return p.lent }

// LentMost is the most that Lent ever was.
func (p *Pool) LentMost() uint32 { return p.lentMost }

// CanLend says whether one more grant fits the table.
func (ps *Pools) CanLend() bool { return !ps.grants.Full() }

// Lend grants pages that somebody has for reading, until End: a prefix of chunks may lie in several pools. CanLend must
// hold. Its owner hears of the proof that nobody reads any more.
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

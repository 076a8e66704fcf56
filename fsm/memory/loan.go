package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
)

// A loan is a read grant: its pages keep their life, their references and their content. They can be
// lent to several readers at a time, but never while one may write.

// Lent counts the pages under read grants, those in quarantine included. A page counts as often as it is lent.
func (p *Pool) Lent() uint32 { return p.grants.lent }

// LentMost is the most that Lent ever was.
func (p *Pool) LentMost() uint32 { return p.grants.lentMost }

// CanLend says whether one more grant fits the table.
func (p *Pool) CanLend() bool { return !p.grants.slab.Full() }

// Lend grants pages that somebody has for reading, until End. CanLend must hold. Its owner hears of the proof that
// nobody reads any more.
func (p *Pool) Lend(pages []effects.Page, owner kernel.Ref) effects.GrantID {
	g := p.grants.add(owner)
	g.loan = true
	for _, page := range pages {
		pg := p.of(page)
		if pg.free() || pg.grant != 0 {
			panic(fmt.Sprintf("BUG: page %d is lent while it is free or being written", page.Index))
		}
		pg.loans++
		g.pages = append(g.pages, page)
	}
	p.grants.lent += uint32(len(pages))
	p.grants.lentMost = max(p.grants.lentMost, p.grants.lent)
	return g.id
}

func (p *Pool) endLoan(g *grant) {
	for _, page := range g.pages {
		p.pages[page.Index].loans--
		p.maybeFree(page.Index)
	}
	p.grants.lent -= uint32(len(g.pages))
	p.grants.remove(g)
	p.freed++
}

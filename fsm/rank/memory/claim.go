package memory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Pages of a pool that is claimed are the engine's own blocks: it decides which of them are whose, and lends us those
// that it names. One that is lent has a reference until it goes back, in a life that begins with the claim; peers that
// are granted it write into that life, and into no other.

// Claimed says whether the page of this number is lent to us; false, too, if there is none.
func (p *Pool) Claimed(index uint32) bool { return p.has(index) && !p.at(index).free() }

// Claim takes a page that is not lent to us, and of which so many bytes are to be written or read.
func (p *Pool) Claim(index, length uint32) effects.Page {
	if !p.claimed || !p.has(index) || !p.at(index).free() {
		panic("BUG: a page is claimed that cannot be")
	}
	p.generation++
	p.taken++
	pg := p.at(index)
	pg.generation, pg.refs = p.generation, 1
	return effects.Page{Pool: p.id, Index: index, Length: length, Generation: pg.generation}
}

// Life is the page of this number in the life that it has.
func (p *Pool) Life(index, length uint32) effects.Page {
	return effects.Page{Pool: p.id, Index: index, Length: length, Generation: p.at(index).generation}
}

// Relive begins another life of a page that is claimed, and that nobody is granted: nothing of what was granted in the
// one before can be stored into it.
func (p *Pool) Relive(index, length uint32) effects.Page {
	pg := p.at(index)
	if !p.claimed || pg.refs == 0 || pg.grant != 0 {
		panic("BUG: a page begins another life that is not claimed, or is granted")
	}
	p.generation++
	pg.generation = p.generation
	return p.Life(index, length)
}

// GrantClaimed grants pages to class for writing that were claimed, and that nobody was granted in this life. FitsShare
// must hold for as many. Until they land, or the grant ends, their claim cannot go back.
func (ps *Pools) GrantClaimed(p *Pool, class int, pages []effects.Page, owner kernel.Ref) (
	effects.GrantID, []effects.Page,
) {
	g := ps.add(p, owner)
	g.class, g.open = class, uint32(len(pages))
	for i, page := range pages {
		pg := p.of(page)
		if pg.refs == 0 || pg.grant != 0 {
			panic("BUG: a page is granted that is not claimed, or granted twice")
		}
		pg.grant, pg.position = g.id, uint32(i)
		g.pages = append(g.pages, page)
	}
	p.used[class] += g.open
	ps.held[class]++
	p.open += g.open
	return g.id, g.pages
}

package memory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// The pages of a claimed pool (PoolConfig.Claimed) are the engine's own blocks: the engine decides which request uses
// which block, and lends this rank the blocks that it names. A block that is lent has a reference until the block goes
// back to the engine, in a generation that begins with the claim. Grants to peers name that generation, so a store for
// an earlier generation is refused (rule M2).

// IsClaimed reports whether the engine has lent the page with this index. IsClaimed reports false if there is no such
// page.
func (p *Pool) IsClaimed(index uint32) bool { return p.hasPage(index) && !p.pageAt(index).isFree() }

// ClaimPage takes a page that the engine lends, in a new generation and with a reference. length is the number of bytes
// that are to be written or read. ClaimPage panics if the pool is not claimed, or if the page does not exist or is
// already lent.
func (p *Pool) ClaimPage(index, length uint32) effects.Page {
	if !p.claimed || !p.hasPage(index) || !p.pageAt(index).isFree() {
		panic("BUG: a page is claimed that cannot be")
	}
	p.generation++
	p.claimedPages++
	pg := p.pageAt(index)
	pg.generation, pg.refs, pg.sum = p.generation, 1, 0
	return effects.Page{Pool: p.id, Index: index, Length: length, Generation: pg.generation}
}

// CurrentPage returns the page with this index, in its present generation and with the given length.
func (p *Pool) CurrentPage(index, length uint32) effects.Page {
	return effects.Page{Pool: p.id, Index: index, Length: length, Generation: p.pageAt(index).generation}
}

// BeginGeneration begins a new generation of a claimed page that has no write grant. What was granted in the former
// generation can no longer be stored into the page (rule M2). BeginGeneration panics if the page is not claimed or has
// a write grant.
func (p *Pool) BeginGeneration(index, length uint32) effects.Page {
	pg := p.pageAt(index)
	if !p.claimed || pg.refs == 0 || pg.grant != 0 {
		panic("BUG: a page begins another life that is not claimed, or is granted")
	}
	p.generation++
	pg.generation, pg.sum = p.generation, 0
	return p.CurrentPage(index, length)
}

// GrantClaimedPages grants pages that were claimed to class for writing. A page must have no write grant yet. The
// caller must have checked FitsShare for as many pages. Until the pages land or the grant ends, the claim must not go
// back to the engine. GrantClaimedPages panics if a page is not claimed or already granted.
func (ps *Pools) GrantClaimedPages(p *Pool, class int, pages []effects.Page, owner kernel.Ref) (
	effects.GrantID, []effects.Page,
) {
	g := ps.addGrant(p, owner)
	g.class, g.openPages = class, uint32(len(pages))
	for i, page := range pages {
		pg := p.pageOf(page)
		if pg.refs == 0 || pg.grant != 0 {
			panic("BUG: a page is granted that is not claimed, or granted twice")
		}
		pg.grant, pg.position = g.id, uint32(i)
		g.pages = append(g.pages, page)
	}
	ps.addUsed(p, class, g.openPages)
	ps.grantsByClass[class]++
	p.openPages += g.openPages
	return g.id, g.pages
}

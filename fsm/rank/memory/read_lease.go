package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A loan is a read grant. Its pages keep their generation, their references and their content. A page can be lent to
// several readers at a time, but never while a peer may write the page (rule M1).

// LeasedPages returns the number of pages under read grants, in force or in quarantine. A page counts once for each of
// its read grants.
func (p *Pool) LeasedPages() uint32 { return p.leasedPages }

// LeasedPages returns the number of pages under read grants in all pools.
func (ps *Pools) LeasedPages() uint32 { return ps.leasedPages }

// MaxLeasedPages returns the maximum that LeasedPages of all pools has had since the start. The pools may have had theirs
// at different times.
func (ps *Pools) MaxLeasedPages() uint32 { return ps.leasedPagesMax }

// HasGrantSlot reports whether the table of grants has a free slot.
func (ps *Pools) HasGrantSlot() bool { return !ps.grants.Full() }

// LeasePages grants pages that are in use for reading, until EndGrant, and returns the grant's id. The pages may lie in
// several pools, because a prefix of chunks may. The caller must have checked HasGrantSlot. The owner is notified of
// the proof that the peer does not read any more. LeasePages panics if a page is free or has a write grant (rule M1).
func (ps *Pools) LeasePages(pages []effects.Page, owner kernel.Ref) effects.GrantID {
	g := ps.addGrant(&ps.pools[0], owner)
	g.isReadLease = true
	for _, page := range pages {
		p := ps.PoolOf(page)
		pg := p.pageOf(page)
		if pg.isFree() || pg.grant != 0 {
			panic(fmt.Sprintf("BUG: page %d is leased while it is free or being written", page.Index))
		}
		pg.readLeases++
		p.leasedPages++
		g.pages = append(g.pages, page)
	}
	ps.leasedPages += uint32(len(pages))
	ps.leasedPagesMax = max(ps.leasedPagesMax, ps.leasedPages)
	return g.id
}

// endReadLease removes a read grant. Each of its pages becomes free if nothing else uses it.
func (ps *Pools) endReadLease(g *grant) {
	for _, page := range g.pages {
		p := ps.PoolOf(page)
		p.pageAt(page.Index).readLeases--
		p.leasedPages--
		p.freeIfUnused(page.Index)
	}
	ps.leasedPages -= uint32(len(g.pages))
	ps.removeGrant(g)
	ps.freedCount++
}

package sim

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkRecount    = oracle.NewCheck("contract", "pages in use, counted twice")
	checkOperations = oracle.NewCheck("S17", "operations remembered")
	checkFree       = oracle.NewCheck("S5", "free pages")
)

// countsOracle judges what machines count of their pages.
type countsOracle struct{ judge }

// inUse says whether somebody has a page, as drivers saw it.
func (pg *page) inUse(leased bool) bool {
	return pg.writers > 0 || pg.readers > 0 || pg.reserved != 0 || pg.pins > 0 || pg.scatters > 0 || pg.granted != 0 && !leased
}

// touch follows a change of one page in the number of those in use.
func (p *pool) touch(index uint32) {
	pg := &p.pages[index]
	if use := pg.inUse(p.leased); use != pg.held {
		pg.held = use
		if use {
			p.held++
		} else {
			p.held--
		}
	}
}

// recounted counts from scratch the pages that are in use.
func (or *countsOracle) recounted(n *node) {
	or.judged(checkRecount)
	for _, p := range []*pool{n.pool, n.engine()} {
		held := 0
		for i := range p.pages {
			if p.pages[i].inUse(p.leased) {
				held++
			}
		}
		if held != p.held {
			or.fail(checkRecount, "the ledger follows %d pages in use of node %d, there are %d", p.held, n.it(), held)
		}
	}
}

// recountEvery is how seldom the number of pages in use is counted from scratch: after one
// step in so many, besides whenever the node dies or should be quiet. In between it follows
// each change.
const recountEvery = 64

// remembers checks that no operation is remembered for which there is neither a grant nor who waits.
func (or *countsOracle) remembers(n *node, s *rank.Stats) bool {
	or.judged(checkOperations)
	if s.Operations > s.Grants || s.Retries > s.Waiters {
		or.fail(checkOperations, "node %d remembers %d operations for %d grants, and %d for %d requests that wait",
			n.it(), s.Operations, s.Grants, s.Retries, s.Waiters)
		return false
	}
	return true
}

// free compares the pages that a machine counts as free with those that drivers saw in use before it was asked.
func (or *countsOracle) free(n *node, s *rank.Stats, held int) {
	or.judged(checkFree)
	if s.PagesTotal != len(n.engine().pages) || s.PagesFree < 0 || s.PagesFree+held > s.PagesTotal {
		or.fail(checkFree, "node %d counts %d of %d pages free while %d are in use",
			n.it(), s.PagesFree, s.PagesTotal, held)
	}
}

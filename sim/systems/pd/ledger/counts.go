package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkRecount    = oracle.NewCheck("contract", "pages in use, counted twice")
	checkOperations = oracle.NewCheck("S17", "operations remembered")
	checkFree       = oracle.NewCheck("S5", "free pages")
)

// countsOracle judges what machines count of their pages.
type countsOracle struct{ judge }

// recounted counts from scratch the pages that are in use.
func (or *countsOracle) recounted(n *world.Node) {
	or.judged(checkRecount)
	p, held := n.Pool, 0
	for i := range p.Pages {
		if p.Pages[i].InUse(p.Leased) {
			held++
		}
	}
	if held != p.Held {
		or.fail(checkRecount, "the ledger follows %d pages in use of node %d, there are %d", p.Held, n.It(), held)
	}
}

// recountEvery is how seldom the number of pages in use is counted from scratch: after one
// step in so many, besides whenever the node dies or should be quiet. In between it follows
// each change.
const recountEvery = 64

// remembers checks that no operation is remembered for which there is neither a grant nor who waits.
func (or *countsOracle) remembers(n *world.Node, s *rank.Stats) bool {
	or.judged(checkOperations)
	if s.Operations > s.Grants || s.Retries > s.Waiters {
		or.fail(checkOperations, "node %d remembers %d operations for %d grants, and %d for %d requests that wait",
			n.It(), s.Operations, s.Grants, s.Retries, s.Waiters)
		return false
	}
	return true
}

// free compares the pages that a machine counts as free with those that drivers saw in use before it was asked.
func (or *countsOracle) free(n *world.Node, s *rank.Stats, held int) {
	or.judged(checkFree)
	if s.PagesTotal != n.Engines() || s.PagesFree < 0 || s.DeviceTotal != n.Second || s.DeviceFree < 0 ||
		s.PagesFree+s.ArenaFree+s.DeviceFree+held > s.PagesTotal+s.ArenaTotal+s.DeviceTotal {
		or.fail(checkFree, "node %d counts %d of %d pages free, and %d of %d of its second pool, while %d are in use",
			n.It(), s.PagesFree, s.PagesTotal, s.DeviceFree, s.DeviceTotal, held)
	}
}

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

func (*countsOracle) listen(l *oracle.Listen[countsOracle]) {
	oracle.On(l, func(o *countsOracle, _ *oracle.Call, e counted) {
		if o.recounts(e.node) {
			o.recounted(e.node)
		}
		o.remembers(e.node, e.stats)
	})
	oracle.On(l, func(o *countsOracle, c *oracle.Call, _ oracle.Down) { o.recounted(o.node(c)) })
}

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

// remembers checks that an operation is remembered only while a grant of it stands or a request of it waits.
func (or *countsOracle) remembers(n *world.Node, s *rank.Stats) {
	or.judged(checkOperations)
	if s.Operations > s.Grants || s.Retries > s.Waiters {
		or.fail(checkOperations, "node %d remembers %d operations for %d grants, and %d for %d requests that wait",
			n.It(), s.Operations, s.Grants, s.Retries, s.Waiters)
	}
}

package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRecount    = oracle.NewCheck("contract", "pages in use, counted twice")
	checkOperations = oracle.NewCheck("S17", "records of operations")
	checkFree       = oracle.NewCheck("S5", "free pages")
)

// countOracle judges the machines' counts of pages and operations.
type countOracle struct{ oracleBase }

func (*countOracle) subscribe(l *oracle.Subscriptions[countOracle]) {
	oracle.On(l, func(o *countOracle, _ *oracle.Call, e stepCounted) {
		if o.isRecountStep(e.node) {
			o.recountPages(e.node)
		}
		o.verifyOperations(e.node, e.stats)
	})
	oracle.On(l, func(o *countOracle, c *oracle.Call, _ oracle.IncarnationEnded) { o.recountPages(o.nodeOf(c)) })
}

// recountPages counts the pages in use from scratch, and compares the count with the ledger's running count.
func (or *countOracle) recountPages(n *world.Node) {
	or.countJudged(checkRecount)
	p, inUse := n.Pool, 0
	for i := range p.Pages {
		if p.Pages[i].InUse(p.Leased) {
			inUse++
		}
	}
	if inUse != p.InUseCount {
		or.fail(checkRecount, "the ledger follows %d pages in use of node %d, there are %d", p.InUseCount, n.AsSubject(), inUse)
	}
}

// recountInterval is the number of steps between two counts of the pages in use from scratch. The pages are also
// counted when the node dies and when nothing is in flight. In between the running count follows each change.
const recountInterval = 64

// verifyOperations checks that the machine records an operation only while a grant of the operation is in force or a
// request of the operation waits (S17).
func (or *countOracle) verifyOperations(n *world.Node, s *rank.Stats) {
	or.countJudged(checkOperations)
	if s.Operations > s.Grants || s.Retries > s.PendingRequests {
		or.fail(checkOperations, "node %d has records of %d operations for %d grants, and of %d operations for %d waiting requests",
			n.AsSubject(), s.Operations, s.Grants, s.Retries, s.PendingRequests)
	}
}

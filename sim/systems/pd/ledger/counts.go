package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRecount    = oracle.NewCheck("contract", "pages in use, counted twice")
	checkOperations = oracle.NewCheck("S17", "operations remembered")
	checkFree       = oracle.NewCheck("S5", "free pages")
)

// countsOracle judges the machines' counts of pages and operations.
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

// recounted counts the pages in use from scratch, and compares the count with the ledger's running count.
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

// recountEvery is the number of steps between two counts of the pages in use from scratch. The pages are also counted
// when the node dies and when nothing is in flight. In between the running count follows each change.
const recountEvery = 64

// remembers checks that the machine records an operation only while a grant of the operation is in force or a request
// of the operation waits (S17).
func (or *countsOracle) remembers(n *world.Node, s *rank.Stats) {
	or.judged(checkOperations)
	if s.Operations > s.Grants || s.Retries > s.PendingRequests {
		or.fail(checkOperations, "node %d remembers %d operations for %d grants, and %d for %d requests that wait",
			n.It(), s.Operations, s.Grants, s.Retries, s.PendingRequests)
	}
}

package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node that shares chunks with peers may have a second pool. The second pool receives either the chunks that peers
// write on the node's request or, if the node keeps chunks that peers lease, the chunks that fetches read. Nothing else
// is stored there. A node without a second pool stores everything in the first pool.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkSecondRead   = oracle.NewCheck("S27", "pools of pages that are read into")
	checkSecondAsked  = oracle.NewCheck("S27", "pools of pages that peers write on request")
	checkSecondPut    = oracle.NewCheck("S27", "pools of pages that puts write")
	checkSecondEngine = oracle.NewCheck("S27", "pools of reserved pages")
)

// secondPoolOracle judges in which of the two pools of a node a page is used (S27).
type secondPoolOracle struct{ oracleBase }

// verifyReadPool checks a page that a node reads into, for a fetch or to keep the chunk: the page must be in the node's
// second pool, if the node has a second pool.
func (or *secondPoolOracle) verifyReadPool(n *world.Node, t *world.Transfer, p effects.Pair) {
	if n.SecondPages == 0 {
		return
	}
	if or.countJudged(checkSecondRead); !n.InSecondPool(p.Local.Index) {
		or.fail(checkSecondRead, "node %d reads into page %d with transfer %d, and the page is not in the second pool",
			n.AsSubject(), n.PageSubject(p.Local.Index), oracle.Transfer(t.ID))
	}
}

// verifyAskedPool checks a page that a node asks a peer to write: the page is of the second pool, unless the second
// pool is for fetches.
func (or *secondPoolOracle) verifyAskedPool(n *world.Node, g *world.Grant, page uint32) {
	if n.SecondPages == 0 {
		return
	}
	if or.countJudged(checkSecondAsked); n.InSecondPool(page) == pd.InfoOf(n).Cfg.Keeps {
		or.fail(checkSecondAsked, "node %d requests a write to page %d under grant %d, and the page is in the wrong pool",
			n.AsSubject(), n.PageSubject(page), n.GrantSubject(g.ID))
	}
}

// verifyPutPool checks a page that a put is written into: the page is not of the second pool.
func (or *secondPoolOracle) verifyPutPool(t *world.Transfer, p effects.Pair) {
	to := t.Remote.Node
	if to.SecondPages == 0 || to.Incarnation != t.Remote.Incarnation {
		return
	}
	if or.countJudged(checkSecondPut); to.InSecondPool(p.Remote.Index) {
		or.fail(checkSecondPut, "transfer %d writes a put to page %d of node %d, which is in the second pool",
			oracle.Transfer(t.ID), to.PageSubject(p.Remote.Index), to.AsSubject())
	}
}

// verifyReservedPool checks a page that an engine is given to fill: the page is not of the second pool.
func (or *secondPoolOracle) verifyReservedPool(n *world.Node, t effects.Ticket, page uint32) {
	if n.SecondPages == 0 {
		return
	}
	if or.countJudged(checkSecondEngine); n.InSecondPool(page) {
		or.fail(checkSecondEngine, "node %d gives page %d of its second pool to its engine by ticket %d",
			n.AsSubject(), n.PageSubject(page), oracle.Ticket(t))
	}
}

// subscribe subscribes to nothing: other oracles call this one.
func (*secondPoolOracle) subscribe(*oracle.Subscriptions[secondPoolOracle]) {}

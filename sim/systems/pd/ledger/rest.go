package ledger

import (
	"github.com/kvferry/kvferry/effects"
	links "github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Nothing is left behind: a machine knows each connection and link that drivers have for the machine, and when nothing
// is in flight any more, each table contains only rows that the table declares as allowed at rest.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRest       = oracle.NewCheck("S17", "tables at rest")
	checkDeadlines  = oracle.NewCheck("S17", "deadlines at rest")
	checkReadyRest  = oracle.NewCheck("S17", "ready chunks at rest")
	checkConns      = oracle.NewCheck("S17", "connections that the machine knows")
	checkLinks      = oracle.NewCheck("S17", "links that the machine knows")
	checkConnsServe = oracle.NewCheck("S17", "number of connections to a port")
)

// restOracle judges the rows, connections and links that are left when nothing is in flight (S17).
type restOracle struct{ oracleBase }

func (*restOracle) subscribe(l *oracle.Subscriptions[restOracle]) {
	oracle.On(l, func(o *restOracle, _ *oracle.Call, e stepCounted) {
		if o.isRecountStep(e.node) {
			o.verifyConns(e.node)
		}
	})
	oracle.On(l, func(o *restOracle, _ *oracle.Call, e world.NodeAtRest) { o.verifyRest(e.Node, e.When) })
}

// verifyConns compares the connections and links that drivers have for n with the connections and links that n's
// machine knows. A connection that the machine does not know would never be closed.
func (or *restOracle) verifyConns(n *world.Node) {
	or.countJudged(checkConns, checkLinks)
	open, linked := 0, 0
	for _, c := range or.w.Active.Conns.Items {
		if isOpenFor(c, n) {
			open++
		}
	}
	for _, l := range n.Links {
		if l.ImportReported && !l.Dropped {
			linked++
		}
	}
	conns, known := pd.ConnCountsOf(n)
	if open != conns {
		or.fail(checkConns, "node %d has %d connections open, and knows of %d", n.AsSubject(), open, conns)
	}
	if linked != known {
		or.fail(checkLinks, "node %d has %d links to peers' pages, and knows of %d", n.AsSubject(), linked, known)
	}
}

// verifyRest checks the tables of n when nothing is in flight in n any more. A drain does not wait to send a last
// message to a peer that is out of reach, so more may be left before everything has healed.
func (or *restOracle) verifyRest(n *world.Node, when string) {
	if or.verifyConns(n); !or.w.Healed || or.w.Failure != nil {
		return
	}
	or.countJudged(checkRest, checkDeadlines, checkReadyRest)
	timed := 0
	pd.TablesOf(n, func(name string, rows int, rest table.Rest) {
		switch {
		case rest == table.Timed:
			timed += rows
		case rest == table.Empty && rows != 0 && or.w.Failure == nil:
			or.fail(checkRest, "node %d has %d %s left %s", n.AsSubject(), rows, oracle.Leftover{Node: n.ID, Name: name}, when)
		case rest == table.Ready && rows != 0 && !n.IsCache && or.w.Failure == nil:
			or.fail(checkReadyRest, "node %d keeps %d chunks that no request expects any more %s", n.AsSubject(), rows, when)
		}
	})
	if s := pd.StatsOf(n); s.Deadlines != timed && or.w.Failure == nil {
		or.fail(checkDeadlines, "node %d has %d deadlines, and %d rows with a time limit, %s",
			n.AsSubject(), s.Deadlines, timed, when)
	}
	or.verifyOneConn(n, when)
}

// verifyOneConn checks that n has a single connection to each port of a node, or as many connections as there are
// lanes.
func (or *restOracle) verifyOneConn(n *world.Node, when string) {
	or.countJudged(checkConnsServe)
	for i, c := range or.w.Active.Conns.Items {
		if !isOpenFor(c, n) || c.Server == plan.NoNode || c.Channel == effects.ChannelInit {
			continue
		}
		limit, sameConns := 1, 0
		//exhaustive:ignore
		switch c.Channel {
		case effects.ChannelAlloc:
			limit = or.oracles().requestEnds.countLanes(n, c)
		case effects.ChannelRegister:
			limit = int(links.Lanes)
		case effects.ChannelDirectory:
			limit = 2 // A connection for reports about n, and a connection for requests.
		default:
		}
		for _, o := range or.w.Active.Conns.Items[:i] {
			if isOpenFor(o, n) && o.Server == c.Server && o.Host == c.Host && o.Channel == c.Channel &&
				or.oracles().requestEnds.isEndConn(n, o) == or.oracles().requestEnds.isEndConn(n, c) {
				sameConns++
			}
		}
		if sameConns >= limit && or.w.Failure == nil {
			or.fail(checkConnsServe, "node %d has %d connections to the %v port of node %d %s",
				n.AsSubject(), sameConns+1, c.Channel, oracle.Node(c.Server), when)
		}
	}
}

// isOpenFor reports whether a connection is open as far as n's machine knows.
func isOpenFor(c *world.Conn, n *world.Node) bool {
	return c.OpenReported && !c.Closed && c.Client == n.ID && c.Incarnation == n.Incarnation
}

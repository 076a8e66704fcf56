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
	checkConns      = oracle.NewCheck("S17", "connections that are somebody's")
	checkLinks      = oracle.NewCheck("S17", "links that are somebody's")
	checkConnsServe = oracle.NewCheck("S17", "connections to one port")
)

// restOracle judges the rows, connections and links that are left when nothing is in flight (S17).
type restOracle struct{ judge }

func (*restOracle) listen(l *oracle.Listen[restOracle]) {
	oracle.On(l, func(o *restOracle, _ *oracle.Call, e counted) {
		if o.recounts(e.node) {
			o.counted(e.node)
		}
	})
	oracle.On(l, func(o *restOracle, _ *oracle.Call, e world.Rested) { o.rests(e.Node, e.When) })
}

// counted compares the connections and links that drivers have for n with the connections and links that n's machine
// knows. A connection that the machine does not know would never be closed.
func (or *restOracle) counted(n *world.Node) {
	or.judged(checkConns, checkLinks)
	open, linked := 0, 0
	for _, c := range or.w.Going.Conns.Some {
		if openFor(c, n) {
			open++
		}
	}
	for _, l := range n.Links {
		if l.Given && !l.Dropped {
			linked++
		}
	}
	conns, known := pd.CountsOf(n)
	if open != conns {
		or.fail(checkConns, "node %d has %d connections open, and knows of %d", n.It(), open, conns)
	}
	if linked != known {
		or.fail(checkLinks, "node %d has %d links to peers' pages, and knows of %d", n.It(), linked, known)
	}
}

// rests checks the tables of n when nothing is in flight in n any more. A drain does not wait to send a last message to
// a peer that is out of reach, so more may be left before everything has healed.
func (or *restOracle) rests(n *world.Node, when string) {
	if or.counted(n); !or.w.Healed || or.w.Failure != nil {
		return
	}
	or.judged(checkRest, checkDeadlines, checkReadyRest)
	timed := 0
	pd.TablesOf(n, func(name string, rows int, rest table.Rest) {
		switch {
		case rest == table.Timed:
			timed += rows
		case rest == table.Empty && rows != 0 && or.w.Failure == nil:
			or.fail(checkRest, "node %d has %d %s left %s", n.It(), rows, oracle.Left{Node: n.ID, What: name}, when)
		case rest == table.Ready && rows != 0 && !n.Caches && or.w.Failure == nil:
			or.fail(checkReadyRest, "node %d keeps %d chunks that nobody expects any more %s", n.It(), rows, when)
		}
	})
	if s := pd.StatsOf(n); s.Deadlines != timed && or.w.Failure == nil {
		or.fail(checkDeadlines, "node %d has %d deadlines, and remembers %d things until a time, %s",
			n.It(), s.Deadlines, timed, when)
	}
	or.oneEach(n, when)
}

// oneEach checks that n has a single connection to each port of a node, or as many connections as there are lanes.
func (or *restOracle) oneEach(n *world.Node, when string) {
	or.judged(checkConnsServe)
	for i, c := range or.w.Going.Conns.Some {
		if !openFor(c, n) || c.Server == plan.Nobody || c.Channel == effects.ChannelInit {
			continue
		}
		most, others := 1, 0
		//exhaustive:ignore
		switch c.Channel {
		case effects.ChannelAlloc:
			most = or.all().ends.lanes(n, c)
		case effects.ChannelRegister:
			most = int(links.Lanes)
		case effects.ChannelDirectory:
			most = 2 // A connection for reports about n, and a connection for requests.
		default:
		}
		for _, o := range or.w.Going.Conns.Some[:i] {
			if openFor(o, n) && o.Server == c.Server && o.Host == c.Host && o.Channel == c.Channel &&
				or.all().ends.saysEnds(n, o) == or.all().ends.saysEnds(n, c) {
				others++
			}
		}
		if others >= most && or.w.Failure == nil {
			or.fail(checkConnsServe, "node %d has %d connections to the %v port of node %d %s",
				n.It(), others+1, c.Channel, oracle.Node(c.Server), when)
		}
	}
}

// openFor reports whether a connection is open as far as n's machine knows.
func openFor(c *world.Conn, n *world.Node) bool {
	return c.Up && !c.Closed && c.Client == n.ID && c.Life == n.Life
}

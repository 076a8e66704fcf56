package sim

import (
	"github.com/kvferry/kvferry/effects"
	links "github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Nothing is left behind: of what drivers have for a machine it knows each, and when nothing is under way any more its
// tables have what they say that they may have at rest.

// What is judged here.
var (
	checkRest       = oracle.NewCheck("S17", "tables at rest")
	checkDeadlines  = oracle.NewCheck("S17", "deadlines at rest")
	checkReadyRest  = oracle.NewCheck("S17", "ready chunks at rest")
	checkConns      = oracle.NewCheck("S17", "connections that are somebody's")
	checkLinks      = oracle.NewCheck("S17", "links that are somebody's")
	checkConnsServe = oracle.NewCheck("S17", "connections to one port")
)

// restOracle judges what is left behind.
type restOracle struct{ judge }

// counted compares the connections and links that drivers have for n with those that its machine knows. One that is
// nobody's is never closed.
func (or *restOracle) counted(n *node) {
	or.judged(checkConns, checkLinks)
	open, linked := 0, 0
	for _, c := range or.w.going.conns.some {
		if c.openFor(n) {
			open++
		}
	}
	for _, l := range n.links {
		if l.given && !l.dropped {
			linked++
		}
	}
	conns, known := n.counts()
	if open != conns {
		or.fail(checkConns, "node %d has %d connections open, and knows of %d", n.it(), open, conns)
	}
	if linked != known {
		or.fail(checkLinks, "node %d has %d links to peers' pages, and knows of %d", n.it(), linked, known)
	}
}

// rests checks n's tables when nothing is under way in it any more. A drain does not wait for a last word to a peer
// that is out of reach, so before everything healed there may be more.
func (or *restOracle) rests(n *node, when string) {
	if or.counted(n); !or.w.healed || or.w.failure != nil {
		return
	}
	or.judged(checkRest, checkDeadlines, checkReadyRest)
	timed := 0
	n.tables(func(name string, rows int, rest table.Rest) {
		switch {
		case rest == table.Timed:
			timed += rows
		case rest == table.Empty && rows != 0 && or.w.failure == nil:
			or.fail(checkRest, "node %d has %d %s left %s", n.it(), rows, name, when)
		case rest == table.Ready && rows != 0 && !n.caches && or.w.failure == nil:
			or.fail(checkReadyRest, "node %d keeps %d chunks that nobody expects any more %s", n.it(), rows, when)
		}
	})
	if s := n.stats(); s.Deadlines != timed && or.w.failure == nil {
		or.fail(checkDeadlines, "node %d has %d deadlines, and remembers %d things until a time, %s",
			n.it(), s.Deadlines, timed, when)
	}
	or.oneEach(n, when)
}

// oneEach checks that n has one connection to each port of a node, or as many as there are lanes.
func (or *restOracle) oneEach(n *node, when string) {
	or.judged(checkConnsServe)
	for i, c := range or.w.going.conns.some {
		if !c.openFor(n) || c.server == plan.Nobody || c.channel == effects.ChannelInit {
			continue
		}
		most, others := 1, 0
		if c.channel == effects.ChannelAlloc {
			most = int(links.Lanes)
		}
		for _, o := range or.w.going.conns.some[:i] {
			if o.openFor(n) && o.server == c.server && o.channel == c.channel {
				others++
			}
		}
		if others >= most && or.w.failure == nil {
			or.fail(checkConnsServe, "node %d has %d connections to the %v port of node %d %s",
				n.it(), others+1, c.channel, oracle.Node(c.server), when)
		}
	}
}

// openFor says whether it is open as far as n's machine knows.
func (c *conn) openFor(n *node) bool {
	return c.up && !c.closed && c.client == n.id && c.life == n.life
}

package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// Where several requests are in flight on a connection, its end takes them all. Those that are sent again go in the
// order in which they went first (L7, at senders).

// sentBefore is where an operation of one life of a sender was sent last, and where the time before. A list of them is
// in the order in which they went first.
type sentBefore struct {
	life      uint32
	operation uint64
	conn      uint64
	corr      effects.Corr
	lost      uint64 // the connection of the time before; zero if that was answered
}

// againOracle judges the order of what is sent again.
type againOracle struct {
	judge
	asked [][]sentBefore `snap:"skip"` // by node: its requests on connections with a window
}

// begin empties it for a run of so many nodes.
func (or *againOracle) begin(nodes int) {
	for i := range or.asked {
		or.asked[i] = or.asked[i][:0]
	}
	for range nodes - len(or.asked) {
		or.asked = append(or.asked, nil)
	}
}

// sent checks a request as it leaves its sender on a connection with a window.
func (or *againOracle) sent(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Window <= 1 || c.Server < 0 {
		return
	}
	operation := uint64(0)
	if offer, is := or.truth().asOffer(body); is {
		operation = offer.Ext.Operation
	} else if ask, is := or.truth().asRequest(body); is {
		operation = ask.Ext.Operation
	}
	if operation == 0 {
		return
	}
	all := &or.asked[n.ID]
	i := slices.IndexFunc(*all, func(x sentBefore) bool { return x.life == n.Life && x.operation == operation })
	if i < 0 {
		i = len(*all)
		*all = append(*all, sentBefore{life: n.Life, operation: operation})
	}
	x := &(*all)[i]
	x.lost, x.conn, x.corr = x.conn, c.ID, corr
	if x.lost == 0 || x.lost == c.ID {
		return
	}
	for _, o := range (*all)[i+1:] {
		if o.life == n.Life && o.conn == c.ID && o.lost == x.lost {
			or.w.Fail("L7", "node %d sends operation %d again on connection %d behind operation %d, before which it had gone",
				n.It(), x.operation, oracle.Conn(c.ID), o.operation)
			return
		}
	}
}

// answered notes that an operation was answered: if it is sent again, then for another reason.
func (or *againOracle) answered(n *world.Node, corr effects.Corr) {
	for i := range or.asked[n.ID] {
		if x := &or.asked[n.ID][i]; x.corr == corr && x.life == n.Life {
			x.conn = 0
		}
	}
}

// refused notes an operation that its driver did not take, as it had no question of that name: it goes again after
// those that went, whose end is told when their connection's is.
func (or *againOracle) refused(n *world.Node, ev effects.Event) {
	e, ok := ev.(*effects.Unanswered)
	if !ok {
		return
	}
	for i := range or.asked[n.ID] {
		x := &or.asked[n.ID][i]
		if x.corr == e.Corr && x.life == n.Life && x.conn != 0 && or.w.ConnOf(x.conn).Under(e.Corr) == nil {
			x.conn = 0
		}
	}
}

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

func (*againOracle) listen(l *oracle.Listen[againOracle]) {
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Stepping) { o.unanswered(e.Node, e.Event) })
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Replied) { o.answered(e.Node, e.Corr) })
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Sending) { o.sent(e.Node, e.Conn, e.Corr, e.Body) })
}

// begin empties it for a run of so many nodes.
func (or *againOracle) reset(nodes int) {
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

// unanswered notes what may not go again in its old order: an operation that its driver did not take, as it had no
// question of that name, and goes after those that went; and one of whose end the driver tells late, when an operation
// behind it was told of its own end, and was sent again already. Example: a connection is reset, and closed before the
// machine hears of that. What it asked between the two ends at once, and what it asked before ends as the reset is told.
func (or *againOracle) unanswered(n *world.Node, ev effects.Event) {
	e, ok := ev.(*effects.Unanswered)
	if !ok {
		return
	}
	all := or.asked[n.ID]
	for i := range all {
		x := &all[i]
		if x.corr != e.Corr || x.life != n.Life || x.conn == 0 {
			continue
		}
		overtaken := slices.ContainsFunc(all[i+1:], func(o sentBefore) bool {
			return o.life == n.Life && o.lost == x.conn && o.conn != x.conn
		})
		if overtaken || or.w.ConnOf(x.conn).Under(e.Corr) == nil {
			x.conn = 0
		}
	}
}

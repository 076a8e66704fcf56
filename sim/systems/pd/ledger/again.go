package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// If several requests are in flight on a connection, the end of the connection ends all of these requests. Requests
// that are sent again must be sent in the order in which they were sent first (L7, at senders).

// sentBefore records the connections on which an operation of a sender's incarnation was sent: the last connection, and
// the connection before the last. A list of these records is in the order in which the operations were sent first.
type sentBefore struct {
	life      uint32
	operation uint64
	conn      uint64
	corr      effects.Corr
	lost      uint64 // the connection before the last; zero if there was a reply
}

// againOracle judges the order of requests that are sent again.
type againOracle struct {
	judge
	asked [][]sentBefore `snap:"skip"` // by node: the requests of the node on connections with a window
}

func (*againOracle) listen(l *oracle.Listen[againOracle]) {
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Stepping) { o.unanswered(e.Node, e.Event) })
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Replied) { o.answered(e.Node, e.Corr) })
	oracle.On(l, func(o *againOracle, _ *oracle.Call, e world.Sending) { o.sent(e.Node, e.Conn, e.Corr, e.Body) })
}

// reset empties the records for a run with the given number of nodes.
func (or *againOracle) reset(nodes int) {
	for i := range or.asked {
		or.asked[i] = or.asked[i][:0]
	}
	for range nodes - len(or.asked) {
		or.asked = append(or.asked, nil)
	}
}

// sent checks a request when it is sent on a connection with a window.
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

// answered records that an operation got a reply. If the operation is sent again, then not because of a lost
// connection.
func (or *againOracle) answered(n *world.Node, corr effects.Corr) {
	for i := range or.asked[n.ID] {
		if x := &or.asked[n.ID][i]; x.corr == corr && x.life == n.Life {
			x.conn = 0
		}
	}
}

// unanswered records the operations that need not be sent again in the old order. The order does not apply to an
// operation that the driver did not accept: the driver has no request with that id, and the operation follows the
// operations that were sent. The order also does not apply to an operation whose failure the driver reports late, after
// a later operation was reported and sent again. Example: a connection is reset, and closed before the machine is
// notified of the reset. Requests that the machine made between the two fail at once, and the requests from before fail
// when the reset is reported.
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

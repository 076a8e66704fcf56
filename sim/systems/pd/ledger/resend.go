package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// If several requests are in flight on a connection, the end of the connection ends all of these requests. Requests
// that are sent again must be sent in the order in which they were sent first (L7, at senders).

// sentOperation records the connections on which an operation of a sender's incarnation was sent: the last connection,
// and the connection before the last. A list of these records is in the order in which the operations were sent first.
type sentOperation struct {
	incarnation uint32
	operation   uint64
	conn        uint64
	corr        effects.Corr
	lostConn    uint64 // the connection before the last; zero if there was a reply
}

// resendOracle judges the order of requests that are sent again.
type resendOracle struct {
	oracleBase
	operations [][]sentOperation `snap:"skip"` // by node: the requests of the node on connections with a window
}

func (*resendOracle) subscribe(l *oracle.Subscriptions[resendOracle]) {
	oracle.On(l, func(o *resendOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordUnanswered(e.Node, e.Event) })
	oracle.On(l, func(o *resendOracle, _ *oracle.Call, e world.ReplyReceived) { o.recordReply(e.Node, e.Corr) })
	oracle.On(l, func(o *resendOracle, _ *oracle.Call, e world.SendingRequest) {
		o.verifyOrder(e.Node, e.Conn, e.Corr, e.Body)
	})
}

// reset empties the records for a run with the given number of nodes.
func (or *resendOracle) reset(nodes int) {
	for i := range or.operations {
		or.operations[i] = or.operations[i][:0]
	}
	for range nodes - len(or.operations) {
		or.operations = append(or.operations, nil)
	}
}

// verifyOrder checks a request when it is sent on a connection with a window.
func (or *resendOracle) verifyOrder(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Window <= 1 || c.Server < 0 {
		return
	}
	operation := uint64(0)
	if offer, ok := or.facts().asOffer(body); ok {
		operation = offer.Ext.Operation
	} else if request, ok := or.facts().asRequest(body); ok {
		operation = request.Ext.Operation
	}
	if operation == 0 {
		return
	}
	list := &or.operations[n.ID]
	i := slices.IndexFunc(*list, func(x sentOperation) bool { return x.incarnation == n.Incarnation && x.operation == operation })
	if i < 0 {
		i = len(*list)
		*list = append(*list, sentOperation{incarnation: n.Incarnation, operation: operation})
	}
	x := &(*list)[i]
	x.lostConn, x.conn, x.corr = x.conn, c.ID, corr
	if x.lostConn == 0 || x.lostConn == c.ID {
		return
	}
	for _, o := range (*list)[i+1:] {
		if o.incarnation == n.Incarnation && o.conn == c.ID && o.lostConn == x.lostConn {
			or.w.Fail("L7", "node %d sends operation %d again on connection %d after operation %d, which had been sent later",
				n.AsSubject(), x.operation, oracle.Conn(c.ID), o.operation)
			return
		}
	}
}

// recordReply records that an operation got a reply. If the operation is sent again, then not because of a lost
// connection.
func (or *resendOracle) recordReply(n *world.Node, corr effects.Corr) {
	for i := range or.operations[n.ID] {
		if x := &or.operations[n.ID][i]; x.corr == corr && x.incarnation == n.Incarnation {
			x.conn = 0
		}
	}
}

// recordUnanswered records the operations that need not be sent again in the old order. The order does not apply to an
// operation that the driver did not accept: the driver has no request with that id, and the operation follows the
// operations that were sent. The order also does not apply to an operation whose failure the driver reports late, after
// a later operation was reported and sent again. Example: a connection is reset, and closed before the machine is
// notified of the reset. Requests that the machine made between the two fail at once, and the requests from before fail
// when the reset is reported.
func (or *resendOracle) recordUnanswered(n *world.Node, ev effects.Event) {
	e, ok := ev.(*effects.Unanswered)
	if !ok {
		return
	}
	list := or.operations[n.ID]
	for i := range list {
		x := &list[i]
		if x.corr != e.Corr || x.incarnation != n.Incarnation || x.conn == 0 {
			continue
		}
		overtaken := slices.ContainsFunc(list[i+1:], func(o sentOperation) bool {
			return o.incarnation == n.Incarnation && o.lostConn == x.conn && o.conn != x.conn
		})
		if overtaken || or.w.ConnOf(x.conn).FindRequest(e.Corr) == nil {
			x.conn = 0
		}
	}
}

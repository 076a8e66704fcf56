package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
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

// sentAgain checks a request as it leaves its sender on a connection with a window.
func (w *world) sentAgain(n *node, c *conn, corr effects.Corr, body []byte) {
	if c.window <= 1 || c.server < 0 {
		return
	}
	operation := uint64(0)
	if m := new(protocol.AllocRequest); m.Decode(body, &wireLimits) == nil {
		operation = m.Ext.Operation
	} else if m := new(protocol.PullReadyNotif); m.Decode(body, &wireLimits) == nil {
		operation = m.Ext.Operation
	}
	if operation == 0 {
		return
	}
	i := slices.IndexFunc(n.sentBefore, func(x sentBefore) bool { return x.life == n.life && x.operation == operation })
	if i < 0 {
		i = len(n.sentBefore)
		n.sentBefore = append(n.sentBefore, sentBefore{life: n.life, operation: operation})
	}
	x := &n.sentBefore[i]
	x.lost, x.conn, x.corr = x.conn, c.id, corr
	if x.lost == 0 || x.lost == c.id {
		return
	}
	for _, o := range n.sentBefore[i+1:] {
		if o.life == n.life && o.conn == c.id && o.lost == x.lost {
			w.fail("L7", "node %d sends operation %d again on connection %d behind operation %d, before which it had gone",
				n.it(), x.operation, oracle.Conn(c.id), o.operation)
			return
		}
	}
}

// answeredBefore notes that an operation was answered: if it is sent again, then for another reason.
func (n *node) answeredBefore(corr effects.Corr) {
	for i := range n.sentBefore {
		if x := &n.sentBefore[i]; x.corr == corr && x.life == n.life {
			x.conn = 0
		}
	}
}

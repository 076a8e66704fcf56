package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
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

// sentAgain checks a request as it leaves its sender on a connection with a window.
func (w *cluster) sentAgain(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Window <= 1 || c.Server < 0 {
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
	all := &w.sentBefore[n.ID]
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
			w.Fail("L7", "node %d sends operation %d again on connection %d behind operation %d, before which it had gone",
				n.It(), x.operation, oracle.Conn(c.ID), o.operation)
			return
		}
	}
}

// answeredBefore notes that an operation was answered: if it is sent again, then for another reason.
func (w *cluster) answeredBefore(n *world.Node, corr effects.Corr) {
	for i := range w.sentBefore[n.ID] {
		if x := &w.sentBefore[n.ID][i]; x.corr == corr && x.life == n.Life {
			x.conn = 0
		}
	}
}

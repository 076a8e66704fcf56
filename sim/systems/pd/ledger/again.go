package ledger

import (
	"bytes"
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
	server    int32
	put       effects.Ticket // that it was about then
	back      bool           // its machine knows that no answer comes
}

var checkAgainFirst = oracle.NewCheck("L7", "what goes before what was never sent")

// againOracle judges the order of what is sent again.
type againOracle struct {
	judge
	asked [][]sentBefore `snap:"skip"` // by node
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

// sent checks a request as it leaves its sender: on a connection with a window it goes in the order in which it went
// first, on any before what was never sent.
func (or *againOracle) sent(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Channel != effects.ChannelAlloc || c.Server < 0 {
		return
	}
	operation, put := uint64(0), effects.Ticket(0)
	if offer, is := or.truth().asOffer(body); is {
		operation, put = offer.Ext.Operation, or.putOf(offer.Ext.Request, offer.Keys)
	} else if ask, is := or.truth().asRequest(body); is {
		operation, put = ask.Ext.Operation, or.putOf(ask.Ext.Request, ask.Keys)
	}
	if operation == 0 {
		return
	}
	all := &or.asked[n.ID]
	if or.passes(n, c, operation, put); or.w.Failure != nil || c.Window <= 1 && put == 0 {
		return
	}
	i := slices.IndexFunc(*all, func(x sentBefore) bool { return x.life == n.Life && x.operation == operation })
	if i < 0 {
		i = len(*all)
		*all = append(*all, sentBefore{life: n.Life, operation: operation})
	}
	x := &(*all)[i]
	x.lost, x.conn, x.corr, x.server, x.put = x.conn, c.ID, corr, c.Server, put
	x.back = false
	if c.Window <= 1 || x.lost == 0 || x.lost == c.ID {
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
		x.back = x.back || x.corr == e.Corr && x.life == n.Life && x.conn != 0
		if x.corr == e.Corr && x.life == n.Life && x.conn != 0 && or.w.ConnOf(x.conn).Under(e.Corr) == nil {
			x.conn = 0
		}
	}
}

// putOf is the put that a message is about, as far as its words tell; zero if they do not.
func (or *againOracle) putOf(request []byte, keys [][]byte) effects.Ticket {
	i := or.w.JobNamed(request)
	if i >= uint64(len(or.w.Jobs)) || len(keys) == 0 {
		return 0
	}
	j := &or.w.Jobs[i]
	for k := range j.Batches {
		if b := &j.Batches[k]; b.To-b.From == len(keys) && bytes.Equal(j.Keys[b.From], keys[0]) {
			return b.Put
		}
	}
	return 0
}

// passes checks that a put which was never sent does not go before one that was, and whose connection has ended.
func (or *againOracle) passes(n *world.Node, c *world.Conn, operation uint64, put effects.Ticket) {
	if put == 0 {
		return
	}
	for _, x := range or.asked[n.ID] {
		if x.life == n.Life && x.operation == operation {
			return
		}
	}
	or.judged(checkAgainFirst)
	for _, x := range or.asked[n.ID] {
		if x.life != n.Life || x.server != c.Server || !x.back || x.conn == 0 || x.put == 0 || x.put == put {
			continue
		}
		if before := &or.w.Commands[x.put-1]; before.Node == n.ID && before.Life == n.Life && !before.Over {
			or.fail(checkAgainFirst, "node %d sends ticket %d (put) before ticket %d, which was sent and got no answer",
				n.It(), oracle.Ticket(put), oracle.Ticket(x.put))
			return
		}
	}
}

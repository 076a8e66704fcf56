package register

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A consumer that waits for a request is notified as soon as the producer's engine aborts the request. A producer that
// lends unneeded blocks has them back as soon as the consumer reports that, and not only when the lease ends.

// The checks of this file.
var (
	checkTold     = oracle.NewCheck("L8", "registrations for what is aborted")
	checkNeedless = oracle.NewCheck("L2", "leases of what nobody needs")
)

// awaited is a registration that a node has not answered.
type awaited struct {
	node      oracle.Node
	request   uint64 `snap:"request"`
	peer      effects.Incarnation
	operation uint64
	grant     effects.GrantID
	name      []byte
	written   bool // set once a write has begun; the reply follows the end of the write
}

// waiting holds the unanswered registrations of all nodes.
type waiting struct{ all []awaited }

// called returns the name that both ends use for a request: the transfer, or else the base of the request name.
func called(request, transfer []byte) []byte {
	if len(transfer) > 0 {
		return slices.Concat([]byte("t "), transfer)
	}
	return slices.Concat([]byte("r "), protocol.TrimRequestSuffix(request))
}

// told checks that no registration waits for an aborted request.
var told = oracle.Of("aborted requests", "who registered for one is told", func(l *oracle.Listen[waiting]) {
	oracle.On(l, func(b *waiting, call *oracle.Call, e *effects.Received) {
		var m protocol.PushRegistration
		if e.Channel != effects.ChannelRegister || e.Request == 0 || m.Decode(e.Body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		x := awaited{
			node: call.Node(), request: uint64(e.Request), peer: effects.Incarnation(m.Ext.Incarnation),
			operation: m.Ext.Operation, grant: effects.GrantID(m.Ext.Grant), name: called(m.RequestID, m.Ext.Transfer),
		}
		x.written = slices.ContainsFunc(b.all, func(was awaited) bool {
			return was.written && was.node == x.node && was.peer == x.peer && was.operation == x.operation
		})
		b.all = append(b.all, x)
	})
	oracle.On(l, func(b *waiting, call *oracle.Call, _ oracle.Down) {
		b.all = slices.DeleteFunc(b.all, func(x awaited) bool { return x.node == call.Node() })
	})
	oracle.On(l, func(b *waiting, call *oracle.Call, e *effects.Reply) {
		i := slices.IndexFunc(b.all, func(x awaited) bool { return x.node == call.Node() && x.request == uint64(e.Request) })
		if i < 0 {
			return
		}
		was := b.all[i] // Retries of a registration get a single reply.
		b.all = slices.DeleteFunc(b.all, func(x awaited) bool {
			return x.node == was.node && x.peer == was.peer && x.operation == was.operation
		})
	})
	oracle.On(l, func(b *waiting, call *oracle.Call, e *effects.Transfer) {
		for i := range b.all {
			x := &b.all[i]
			x.written = x.written || x.node == call.Node() && x.peer == e.Peer && x.grant == e.Grant
		}
	})
	oracle.On(l, func(b *waiting, call *oracle.Call, e *effects.Deliver) {
		w := pd.In(call)
		n := w.Nodes[call.Node()]
		if n.User || e.Code != effects.OK {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Want != aborts {
			return
		}
		if x := requestOf(w, &w.Jobs[c.Job]); x.alike {
			return // The name may belong to another request.
		}
		call.Judged(checkTold)
		body := c.Body.(*ops.Aborted)
		name := called(body.Request, body.Transfer)
		if slices.ContainsFunc(b.all, func(x awaited) bool {
			return x.node == call.Node() && !x.written && bytes.Equal(x.name, name)
		}) {
			call.Breaks(checkTold, "node %d was told that request %q will not come, and a registration for it waits on", n.It(),
				oracle.Request(w.Jobs[c.Job].Name))
		}
	})
})

// needless checks that the lease of blocks does not run to its end after the consumer has reported that it needs no
// blocks.
func needless(w *pd.Cluster, n *world.Node, c *pd.Command, e *effects.Deliver) {
	x := requestOf(w, &w.Jobs[c.Job])
	if x.fate != passed || x.alike || pd.Its(n).Cfg.ExactIDs && !x.named || w.Failure != nil {
		return
	}
	of(w).judged(checkNeedless)
	if e.Code != effects.Expired || e.Why == nil || e.Why.Field != "register.kv_lease_duration" {
		return
	}
	for i := range w.Commands {
		p := &w.Commands[i]
		if p.Want != passes || p.Job != c.Job || !p.Over || p.Outcome == 0 || p.Code != effects.OK || !x.tells(p, n) {
			continue
		}
		if pd.Begun(c, n) < pd.Begun(p, w.Nodes[p.Node]) || x.remembered(n, c, p) {
			of(w).fail(checkNeedless, "node %d lends request %q until its lease is over, and was told that nobody needs it",
				n.It(), oracle.Request(w.Jobs[c.Job].Name))
			return
		}
	}
}

// tells reports whether the node of a command notifies the producer node n.
func (x *request) tells(c *pd.Command, n *world.Node) bool {
	return slices.Contains(x.s.producers(pd.Its(x.w.Nodes[c.Node]).Cfg.Geometry), n.ID)
}

// remembered reports whether a node must have known that a request was not needed when its engine finished the request:
// the node has not restarted since the notification, has room for all such notifications, and the notification is
// recent.
func (x *request) remembered(n *world.Node, c, word *pd.Command) bool {
	said := pd.Begun(word, x.w.Nodes[word.Node])
	words, lived := 0, false
	for i := range x.w.Commands {
		o := &x.w.Commands[i]
		if o.Want == passes {
			words += 2 // Each notification is recorded under both possible names.
		}
		lived = lived || o.Node == n.ID && o.Life == c.Life && pd.Begun(o, n) < said
	}
	young := pd.Begun(c, n)-said < int64(pd.Its(n).Cfg.RegisterTimeout)*8/10 // by any clock
	return lived && young && pd.Begun(c, n) > word.Outcome && words <= int(pd.Its(n).Cfg.FinishedMax)
}

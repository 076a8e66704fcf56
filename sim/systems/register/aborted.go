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
	checkAborted   = oracle.NewCheck("L8", "registrations for aborted requests")
	checkNotNeeded = oracle.NewCheck("L2", "leases of blocks that are not needed")
)

// pendingRegistration is a registration that a node has not answered.
type pendingRegistration struct {
	node       oracle.Node
	request    uint64 `snap:"request"`
	peer       effects.Incarnation
	operation  uint64
	grant      effects.GrantID
	name       []byte
	writeBegun bool // set once a write has begun; the reply follows the end of the write
}

// pendingRegistrations holds the unanswered registrations of all nodes.
type pendingRegistrations struct{ rows []pendingRegistration }

// commonName returns the name that both ends use for a request: the transfer, or else the base of the request name.
func commonName(request, transfer []byte) []byte {
	if len(transfer) > 0 {
		return slices.Concat([]byte("t "), transfer)
	}
	return slices.Concat([]byte("r "), protocol.TrimRequestSuffix(request))
}

// abortOracle checks that no registration waits for an aborted request.
var abortOracle = oracle.New("aborted requests", "waiting registrations are answered", func(l *oracle.Subscriptions[pendingRegistrations]) {
	oracle.On(l, func(b *pendingRegistrations, call *oracle.Call, e *effects.Received) {
		var m protocol.PushRegistration
		if e.Channel != effects.ChannelRegister || e.Request == 0 || m.Decode(e.Body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		x := pendingRegistration{
			node: call.Node(), request: uint64(e.Request), peer: effects.Incarnation(m.Ext.Incarnation),
			operation: m.Ext.Operation, grant: effects.GrantID(m.Ext.Grant), name: commonName(m.RequestID, m.Ext.Transfer),
		}
		x.writeBegun = slices.ContainsFunc(b.rows, func(was pendingRegistration) bool {
			return was.writeBegun && was.node == x.node && was.peer == x.peer && was.operation == x.operation
		})
		b.rows = append(b.rows, x)
	})
	oracle.On(l, func(b *pendingRegistrations, call *oracle.Call, _ oracle.IncarnationEnded) {
		b.rows = slices.DeleteFunc(b.rows, func(x pendingRegistration) bool { return x.node == call.Node() })
	})
	oracle.On(l, func(b *pendingRegistrations, call *oracle.Call, e *effects.Reply) {
		i := slices.IndexFunc(b.rows, func(x pendingRegistration) bool { return x.node == call.Node() && x.request == uint64(e.Request) })
		if i < 0 {
			return
		}
		was := b.rows[i] // Retries of a registration get a single reply.
		b.rows = slices.DeleteFunc(b.rows, func(x pendingRegistration) bool {
			return x.node == was.node && x.peer == was.peer && x.operation == was.operation
		})
	})
	oracle.On(l, func(b *pendingRegistrations, call *oracle.Call, e *effects.Transfer) {
		for i := range b.rows {
			x := &b.rows[i]
			x.writeBegun = x.writeBegun || x.node == call.Node() && x.peer == e.Peer && x.grant == e.Grant
		}
	})
	oracle.On(l, func(b *pendingRegistrations, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom || e.Code != effects.OK {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Kind != wantAborted {
			return
		}
		if x := drawRequest(w, &w.Jobs[c.Job]); x.sharesName {
			return // The name may belong to another request.
		}
		call.CountJudged(checkAborted)
		body := c.Body.(*ops.Aborted)
		name := commonName(body.Request, body.Transfer)
		if slices.ContainsFunc(b.rows, func(x pendingRegistration) bool {
			return x.node == call.Node() && !x.writeBegun && bytes.Equal(x.name, name)
		}) {
			call.FailCheck(checkAborted, "node %d was told that request %q is aborted, and a registration for it still waits", n.AsSubject(),
				oracle.Request(w.Jobs[c.Job].Name))
		}
	})
})

// checkNotNeededLease checks that the lease of blocks does not run to its end after the consumer has reported that it
// needs no blocks.
func checkNotNeededLease(w *pd.Cluster, n *world.Node, c *pd.Command, e *effects.Deliver) {
	x := drawRequest(w, &w.Jobs[c.Job])
	if x.fate != fateNotNeeded || x.sharesName || pd.InfoOf(n).Cfg.ExactIDs && !x.namesTransfer || w.Failure != nil {
		return
	}
	reporterFor(w).countChecks(checkNotNeeded)
	if e.Code != effects.Expired || e.Why == nil || e.Why.Field != "register.kv_lease_duration" {
		return
	}
	for i := range w.Commands {
		p := &w.Commands[i]
		if p.Kind != wantNotNeeded || p.Job != c.Job || !p.Finished || p.FinishedAt == 0 || p.Code != effects.OK || !x.notifies(p, n) {
			continue
		}
		if pd.ReceiptTime(c, n) < pd.ReceiptTime(p, w.Nodes[p.Node]) || x.mustRemember(n, c, p) {
			reporterFor(w).fail(checkNotNeeded, "node %d lends request %q until the lease ends, and was told that it is not needed",
				n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name))
			return
		}
	}
}

// notifies reports whether the node of a command notifies the producer node n.
func (x *request) notifies(c *pd.Command, n *world.Node) bool {
	return slices.Contains(x.shape.producersOf(pd.InfoOf(x.w.Nodes[c.Node]).Cfg.Geometry), n.ID)
}

// mustRemember reports whether a node must have known that a request was not needed when its engine finished the
// request: the node has not restarted since the notification, has room for all such notifications, and the notification
// is recent.
func (x *request) mustRemember(n *world.Node, c, notification *pd.Command) bool {
	notifiedAt := pd.ReceiptTime(notification, x.w.Nodes[notification.Node])
	entries, ranBefore := 0, false
	for i := range x.w.Commands {
		o := &x.w.Commands[i]
		if o.Kind == wantNotNeeded {
			entries += 2 // Each notification is recorded under both possible names.
		}
		ranBefore = ranBefore || o.Node == n.ID && o.Incarnation == c.Incarnation && pd.ReceiptTime(o, n) < notifiedAt
	}
	isRecent := pd.ReceiptTime(c, n)-notifiedAt < int64(pd.InfoOf(n).Cfg.RegisterTimeout)*8/10 // by any clock
	return ranBefore && isRecent && pd.ReceiptTime(c, n) > notification.FinishedAt && entries <= int(pd.InfoOf(n).Cfg.FinishedMax)
}

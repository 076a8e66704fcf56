package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// If no process listens at a receiver's address, senders learn that when they connect. A put that waits for the
// connection must end at that moment with the code Unreachable, and must not wait for its deadline. A put that is
// issued later must try to connect again (L1).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkStranded    = oracle.NewCheck("L1", "puts where nobody listens")
	checkUnreachable = oracle.NewCheck("L1", "puts that end early")
)

// absentOracle judges the outcomes of puts to a receiver at whose address no process listens.
type absentOracle struct {
	judge
	perLife[absentLife]
}

func (*absentOracle) listen(l *oracle.Listen[absentOracle]) {
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e world.Opening) { o.connecting(e.Node, e.Conn) })
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e world.Sending) { o.spoke(e.Node, e.Conn) })
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e world.Unreachable) { o.nobody(e.Node, e.Conn) })
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e world.FoundUnreachable) { o.stranded(e.Node, e.Conn) })
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e pd.PutEnded) {
		o.unreachable(e.Node, e.Command, e.Effect.Code)
	})
	oracle.On(l, func(o *absentOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// absentLife records an incarnation of a sender.
type absentLife struct {
	to []absentSeen `snap:"skip"` // by the receiver's node; empty before the first
}

func (s *absentLife) startReply() { *s = absentLife{to: s.to[:0]} }

// absentSeen records the messages of an incarnation of a sender to a receiver, and the failures to connect.
type absentSeen struct {
	conn uint64 // the newest connection for a handshake
	sent uint64 // the step in which the sender last sent an allocation request or an offer
	none uint64 // the step in which the sender was last notified that no process listens
	owed uint64 // the same step while the machine has work left and may still have to end puts; otherwise 0
}

// absent returns the record of a sender about a receiver.
func (or *absentOracle) absent(n *world.Node, receiver int32) *absentSeen {
	my := or.at(n)
	for len(my.to) < len(or.w.Nodes) {
		my.to = append(my.to, absentSeen{})
	}
	return &my.to[receiver]
}

// connecting records a connection that a sender makes.
func (or *absentOracle) connecting(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Channel == effects.ChannelInit && c.Server >= 0 {
		a := or.absent(n, c.Server)
		if a.owed != 0 { // The waiting puts are about to be notified anew.
			or.void(checkStranded)
		}
		a.conn, a.owed = c.ID, 0
	}
}

// spoke records that a put is in progress. What the sender knew of the receiver before is no reason for the put's end
// any more.
func (or *absentOracle) spoke(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Channel == effects.ChannelAlloc && c.Server >= 0 {
		or.absent(n, c.Server).sent = n.Steps
	}
}

// nobody records that a sender is notified in the next step that no process listens on a port of the receiver.
func (or *absentOracle) nobody(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Server >= 0 {
		or.absent(n, c.Server).none = n.Steps + 1
	}
}

// stranded checks that no earlier put waits for the receiver, once the sender was notified that no process listens and
// has no more work for that instant. A put that was in progress once may have more to wait for, and an attempt that
// took too long was given up already.
func (or *absentOracle) stranded(n *world.Node, c *world.Conn) {
	if !n.Sends() || c.Channel != effects.ChannelInit || c.Server < 0 || or.w.Failure != nil {
		return
	}
	a := or.absent(n, c.Server)
	if n.Receives() && or.w.Nodes[c.Server].Pulls || or.w.Flows.Bring() { // It may connect for renewals, or for chunks.
		or.void(checkStranded)
		return
	}
	if n.Busy || a.conn != c.ID || or.w.Clock(n) >= c.Opened.Add(pd.Its(n).Cfg.ReplyTimeout) {
		or.void(checkStranded)
		return
	}
	a.owed = n.Steps
	or.afterStep(n)
}

// afterStep judges the checks that were due when the machine had more work.
func (or *absentOracle) afterStep(n *world.Node) {
	if n.Busy || !n.Sends() {
		return
	}
	my := or.at(n)
	for receiver := range my.to {
		if a := &my.to[receiver]; a.owed != 0 && or.w.Failure == nil {
			or.waits(n, int32(receiver), a)
			a.owed = 0
		}
	}
}

// waits checks that no put waits for a receiver after the sender was notified that no process listens there.
func (or *absentOracle) waits(n *world.Node, receiver int32, a *absentSeen) {
	or.judged(checkStranded)
	for _, t := range or.w.Undone.Some {
		p := &or.w.Commands[t-1]
		if p.Want != plan.WantPut || p.Over || p.Node != n.ID || p.Life != n.Life {
			continue
		}
		if p.Step == 0 || p.Step <= a.sent || p.Step >= a.owed {
			continue
		}
		if j := &or.w.Jobs[p.Job]; j.Receiver == receiver && !j.PlainTo {
			or.fail(checkStranded, "node %d lets ticket %d (put) wait although nobody listens at node %d",
				n.It(), oracle.Ticket(t), oracle.Node(receiver))
			return
		}
	}
}

// unfoundCodes are the codes of failed attempts to connect that say nothing about the put or about the peer's
// configuration.
var unfoundCodes = []effects.Code{effects.Unreachable, effects.Expired, effects.PeerLost, effects.Refused,
	effects.Faulted, effects.Closed, effects.Stale}

// unreachable checks that a put which was never in progress ends early only because of an attempt to connect that was
// made for this put.
func (or *absentOracle) unreachable(n *world.Node, c *pd.Command, code effects.Code) {
	if code == effects.OK {
		return
	}
	if !slices.Contains(unfoundCodes, code) || or.w.Jobs[c.Job].PlainTo {
		or.void(checkUnreachable)
		return // The put or the peer is misconfigured, or the sender backs off from the receiver.
	}
	or.judged(checkUnreachable)
	a := or.absent(n, or.w.Jobs[c.Job].Receiver)
	given := c.Due - int64(n.Slowest(c.Patience)+pd.Grace)
	found := c.Step < a.none && code == effects.Unreachable
	if early := or.w.Now-given < int64(c.Patience)*9/10; early && c.Step > a.sent && !found {
		or.fail(checkUnreachable, "node %d ends a put as %s although node %d was not looked for since it came",
			n.It(), code, oracle.Node(or.w.Jobs[c.Job].Receiver))
	}
}

package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Nobody listens at a receiver's address: its senders learn it when they connect. A put that waits for that connection
// ends then and there, as unreachable, and not when its patience is over. One that comes later finds out for itself.
// (L1.)

// What is judged here.
var (
	checkStranded    = oracle.NewCheck("L1", "puts where nobody listens")
	checkUnreachable = oracle.NewCheck("L1", "puts that end early")
)

// absentOracle judges what becomes of puts to who is not there.
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

type absentLife struct {
	to []absentSeen `snap:"skip"` // by the receiver's node; empty before the first
}

func (s *absentLife) empty() { *s = absentLife{to: s.to[:0]} }

// An absentSeen is what one life of a sender did towards a receiver.
type absentSeen struct {
	conn uint64 // the newest on which it would shake hands
	sent uint64 // the step in which it asked for pages, or offered some, last
	none uint64 // the step in which it was told last that nobody listens
	owed uint64 // such a step, if puts that it is to end may still stand: it has work left of that instant; else 0
}

func (or *absentOracle) absent(n *world.Node, receiver int32) *absentSeen {
	my := or.at(n)
	for len(my.to) < len(or.w.Nodes) {
		my.to = append(my.to, absentSeen{})
	}
	return &my.to[receiver]
}

// connecting notes a connection that a sender makes.
func (or *absentOracle) connecting(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Channel == effects.ChannelInit && c.Server >= 0 {
		a := or.absent(n, c.Server)
		if a.owed != 0 { // What waits is about to learn it anew.
			or.void(checkStranded)
		}
		a.conn, a.owed = c.ID, 0
	}
}

// spoke notes that a put is under way: what is known of its receiver by then is no reason for its end any more.
func (or *absentOracle) spoke(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Channel == effects.ChannelAlloc && c.Server >= 0 {
		or.absent(n, c.Server).sent = n.Steps
	}
}

// nobody notes that a sender is told in its next step that nobody listens, on whichever of the receiver's ports.
func (or *absentOracle) nobody(n *world.Node, c *world.Conn) {
	if n.Sends() && c.Server >= 0 {
		or.absent(n, c.Server).none = n.Steps + 1
	}
}

// stranded checks, when a sender was told that nobody listens and has no more work of that instant, that no put waits
// on that came before it. One that was under way once may have more to wait for; and an attempt that took too long was
// given up already.
func (or *absentOracle) stranded(n *world.Node, c *world.Conn) {
	if !n.Sends() || c.Channel != effects.ChannelInit || c.Server < 0 || or.w.Failure != nil {
		return
	}
	a := or.absent(n, c.Server)
	if n.Receives() && or.w.Nodes[c.Server].Pulls || or.w.Flows.Bring() { // It may ask there for more time, or for chunks.
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

// afterStep judges what is owed by now.
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

// waits checks that no put to a receiver waits that was told that nobody listens there.
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

// unfoundCodes are how an attempt to connect may end that says nothing of what is to be put, or of how the peer is
// made.
var unfoundCodes = []effects.Code{effects.Unreachable, effects.Expired, effects.PeerLost, effects.Refused,
	effects.Faulted, effects.Closed, effects.Stale}

// unreachable checks that a put which was never under way ends early for no other reason than what it found itself.
func (or *absentOracle) unreachable(n *world.Node, c *pd.Command, code effects.Code) {
	if code == effects.OK {
		return
	}
	if !slices.Contains(unfoundCodes, code) || or.w.Jobs[c.Job].PlainTo {
		or.void(checkUnreachable)
		return // What is wrong with it, or with the peer that it is for; or its receiver is to be left alone.
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

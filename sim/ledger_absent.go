package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
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

type absentLife struct {
	to []absentSeen `snap:"skip"` // by the receiver's node; empty before the first
}

func (s *absentLife) empty() { *s = absentLife{to: s.to[:0]} }

// An absentSeen is what one life of a sender did towards a receiver.
type absentSeen struct {
	conn uint64 // the newest on which it would shake hands
	sent uint64 // the step in which it asked for pages, or offered some, last
	none uint64 // the step in which it was told last that nobody listens
}

func (or *absentOracle) absent(n *node, receiver int32) *absentSeen {
	my := or.at(n)
	for len(my.to) < len(or.w.nodes) {
		my.to = append(my.to, absentSeen{})
	}
	return &my.to[receiver]
}

// connecting notes a connection that a sender makes.
func (or *absentOracle) connecting(n *node, c *conn) {
	if n.sends() && c.channel == effects.ChannelInit && c.server >= 0 {
		or.absent(n, c.server).conn = c.id
	}
}

// spoke notes that a put is under way: what is known of its receiver by then is no reason for its end any more.
func (or *absentOracle) spoke(n *node, c *conn) {
	if n.sends() && c.channel == effects.ChannelAlloc && c.server >= 0 {
		or.absent(n, c.server).sent = n.steps
	}
}

// nobody notes that a sender is told in its next step that nobody listens, on whichever of the receiver's ports.
func (or *absentOracle) nobody(n *node, c *conn) {
	if n.sends() && c.server >= 0 {
		or.absent(n, c.server).none = n.steps + 1
	}
}

// stranded checks, after the step in which a sender was told that nobody listens, that no put waits on that came before
// it. One that was under way once may have more to wait for, and so may one whose chunks are copied; and an attempt
// that took too long was given up already.
func (or *absentOracle) stranded(n *node, c *conn) {
	if !n.sends() || n.device != nil || c.channel != effects.ChannelInit || c.server < 0 || or.w.failure != nil {
		return
	}
	a := or.absent(n, c.server)
	if n.receives() && or.w.nodes[c.server].pulls { // It may ask for more time there, by the same port.
		or.void(checkStranded)
		return
	}
	if a.conn != c.id || or.w.clock(n) >= c.opened.Add(n.cfg.ReplyTimeout) {
		or.void(checkStranded)
		return
	}
	or.judged(checkStranded)
	for _, t := range or.w.going.commands.some {
		p := &or.w.commands[t-1]
		if p.want != plan.WantPut || p.over || p.node != n.id || p.life != n.life {
			continue
		}
		if p.step == 0 || p.step <= a.sent || p.step >= n.steps {
			continue
		}
		if j := &or.w.jobs[p.job]; j.receiver == c.server && !j.plainTo {
			or.fail(checkStranded, "node %d lets ticket %d (put) wait although nobody listens at node %d",
				n.it(), oracle.Ticket(t), oracle.Node(c.server))
			return
		}
	}
}

// unfoundCodes are how an attempt to connect may end that says nothing of what is to be put, or of how the peer is
// made.
var unfoundCodes = []effects.Code{effects.Unreachable, effects.Expired, effects.PeerLost, effects.Refused,
	effects.Faulted, effects.Closed, effects.Stale}

// unreachable checks that a put which was never under way ends early for no other reason than what it found itself.
func (or *absentOracle) unreachable(n *node, c *command, code effects.Code) {
	if code == effects.OK {
		return
	}
	if !slices.Contains(unfoundCodes, code) || or.w.jobs[c.job].plainTo || n.device != nil {
		or.void(checkUnreachable)
		return // What is wrong with it, or with the peer that it is for; or its receiver is to be left alone.
	}
	or.judged(checkUnreachable)
	a := or.absent(n, or.w.jobs[c.job].receiver)
	given := c.due - int64(n.slowest(c.patience)+grace)
	found := c.step < a.none && code == effects.Unreachable
	if early := or.w.now-given < int64(c.patience)*9/10; early && c.step > a.sent && !found {
		or.fail(checkUnreachable, "node %d ends a put as %s although node %d was not looked for since it came",
			n.it(), code, oracle.Node(or.w.jobs[c.job].receiver))
	}
}

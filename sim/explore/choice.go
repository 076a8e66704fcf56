package explore

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A state is a node of the search tree of an exploration: a run, and the number of faults that may still strike.
type state struct {
	run        Run
	w          *world.World `snap:"scratch"` // the run's world
	faultsLeft int          // faults that may still strike
	frozen     int32        // the node that is stalled, or plan.NoNode
	frozenAt   int64        `snap:"instant"`

	stepwise bool `snap:"skip"` // combine no choices; for tests that compare both ways
}

// move is a kind of choice.
type move uint8

const (
	moveDeliver move = iota + 1 // the first delivery of a channel happens, or an engine acts
	moveTick                    // time passes to the earliest deadline, and that machine is ticked
	moveWait                    // time passes by one unit, without a deadline
	moveThaw                    // the stalled process resumes
	// Faults.
	moveStrike  // a fault strikes at every occasion in the next delivery or tick
	moveCrash   // a node crashes
	moveCrashIn // a node crashes in the middle of a step, after nth effects
	moveDrain   // a node is asked to drain
	moveAbort   // an engine aborts a command
	moveCutConn
	moveCutLink
	moveSystemFault // a fault that only the run's system knows
	moveStall       // a process stops; its hardware continues
)

// choice is an action that can happen next.
type choice struct {
	move move
	seq  uint64 // of the delivery
	node int32
	nth  int // effects before a crash; the ticket, connection, link or fault concerned

	stepsMachine bool // the choice passes an event to the machine of node
}

// isFault reports whether the choice is a fault.
func (c choice) isFault() bool { return c.move >= moveStrike }

// channelOf returns a number for the channel in which a delivery keeps its order, as the real transports and planes do:
// the completions of a node's data plane, an engine's commands, what a client's transport reports, the two stores of a
// page. channelOf returns 0 for a delivery that may overtake all others.
func channelOf(w *world.World, d *world.Delivery) uint64 {
	const plane, mailbox, notice, store, words, batches = 1 << 56, 2 << 56, 3 << 56, 4 << 56, 5 << 56, 6 << 56
	node := uint64(uint32(d.Node))
	switch d.Kind {
	case world.KindImported, world.KindLinkLost, world.KindTransferDone, world.KindSettled, world.KindLanded,
		world.KindRevoked, world.KindDropped:
		return plane | node
	case world.KindCommand:
		return mailbox | node
	case world.KindReplied, world.KindUnanswered:
		return notice | node
	case world.KindConnLost:
		if c := w.ConnOf(d.A); c != nil && c.Client == d.Node {
			return notice | node
		}
	case world.KindStore, world.KindLoad:
		return store | d.A<<16 | d.B
	case world.KindCommToTarget, world.KindCommChannelEnded:
		return words | d.A<<1
	case world.KindCommToInitiator:
		return words | d.A<<1 | 1
	case world.KindCommBatchEnded:
		return batches | d.A
	default:
	}
	return 0
}

// listChoices lists everything that can happen next. The order of the list depends only on the path to the state,
// because paths consist of positions in the list.
func (b *state) listChoices(s *Scope, into []choice) []choice {
	w, act := b.w, b.nextAct(s)
	queued := w.Queue.Heap
	slices.SortFunc(queued, func(p, q world.QueueEntry) int { return int(p.Seq) - int(q.Seq) })
	for _, q := range queued {
		d := &w.Queue.Slab[q.Slot]
		if b.isStalled(d) || !b.isChannelHead(q) || isTimeout(d) || act > 0 && actOf(s, d) >= act {
			continue
		}
		steps := d.Kind <= world.KindDropped || d.Kind == world.KindRequestArrives || d.Kind == world.KindPostArrives || !b.stepwise &&
			givesCommands(d.Kind)
		into = append(into, choice{move: moveDeliver, seq: q.Seq, node: b.steppedNode(d), stepsMachine: steps})
		if d.Kind == world.KindLinkLost && d.A != 0 && w.Links[d.A-1].Dropped {
			into = append(into, choice{move: moveDeliver, seq: q.Seq, node: d.Node, stepsMachine: true, nth: 1})
		}
	}
	if len(into) == 0 {
		into = b.addTimeouts(into)
	}
	if len(into) == 0 && act > 0 {
		into = b.addStarts(s, act, into)
	}
	timersMayPass := s.Timers != TimersIdle && act == 0 // Everything is fast until the last act.
	if timersMayPass || len(into) == 0 {
		into = b.addTicks(into)
	}
	if timersMayPass && s.Timers == TimersUnits && w.System.PendingCommands() > 0 && b.canWaitUnit() {
		into = append(into, choice{move: moveWait})
	}
	if b.frozen != plan.NoNode {
		into = append(into, choice{move: moveThaw, node: b.frozen})
	}
	if b.faultsLeft > 0 {
		into = b.addFaults(s, into)
	}
	return into
}

// isTimeout reports whether a delivery is a timeout of a driver, which happens only when nothing else can.
func isTimeout(d *world.Delivery) bool {
	return d.Kind == world.KindCommFormCheck && d.C == world.FormTimedOut
}

// addTimeouts adds the timeouts of drivers that may happen now.
func (b *state) addTimeouts(into []choice) []choice {
	for _, q := range b.w.Queue.Heap {
		if d := &b.w.Queue.Slab[q.Slot]; isTimeout(d) && !b.isStalled(d) {
			into = append(into, choice{move: moveDeliver, seq: q.Seq, node: b.steppedNode(d)})
		}
	}
	return into
}

// steppedNode returns the node at which a delivery steps the machine, if any.
func (b *state) steppedNode(d *world.Delivery) int32 {
	switch d.Kind {
	case world.KindRequestArrives, world.KindPostArrives:
		return b.w.Conns[d.A-1].Server
	case world.KindReplyArrives:
		return b.w.Conns[d.A-1].Client
	default:
		return b.run.SteppedNode(d)
	}
}

// givesCommands reports whether engines give commands in deliveries of a kind.
func givesCommands(k world.Kind) bool {
	switch k {
	case world.KindStartJob, world.KindPagesFilled, world.KindFetchJob, world.KindReleasePages, world.KindProxyPost, world.KindItem,
		world.KindAttached:
		return true
	default:
		return false
	}
}

// isStalled reports whether d must wait for the stalled process. Hardware need not wait.
func (b *state) isStalled(d *world.Delivery) bool {
	return b.frozen != plan.NoNode && d.Kind.IsForProcess() && b.steppedNode(d) == b.frozen
}

// canWaitUnit reports whether the next unit of time contains no deadline while a deadline is near enough that its exact
// time matters.
func (b *state) canWaitUnit() bool {
	near := false
	for _, n := range b.w.Nodes {
		if !n.Up || n.ID == b.frozen {
			continue
		}
		if t, ok := nextDeadline(n); ok {
			in := effects.Duration(n.InstantOf(t) - b.w.Now)
			if in <= Unit {
				return false
			}
			near = near || in <= nearUnitsMax*Unit
		}
	}
	return near
}

// addTicks adds the nodes that have the earliest deadline. Deadlines of different nodes never overtake each other, but
// deliveries may happen after any number of deadlines.
func (b *state) addTicks(into []choice) []choice {
	var earliest int64
	first := len(into)
	for _, n := range b.w.Nodes {
		if !n.Up || n.ID == b.frozen {
			continue
		}
		deadline, ok := nextDeadline(n)
		t := n.InstantOf(deadline)
		switch {
		case !ok:
		case len(into) == first || t < earliest:
			into = append(into[:first], choice{move: moveTick, node: n.ID, stepsMachine: true})
			earliest = t
		case t == earliest:
			into = append(into, choice{move: moveTick, node: n.ID, stepsMachine: true})
		}
	}
	return into
}

// addFaults adds the faults that may strike now.
func (b *state) addFaults(s *Scope, into []choice) []choice {
	w := b.w
	for _, f := range s.DrawnFaults {
		for _, c := range into {
			if c.move == moveDeliver || c.move == moveTick {
				into = append(into, choice{move: moveStrike, seq: c.seq, node: c.node, nth: int(f)})
			}
		}
	}
	for t := 1; s.Abort && t <= b.run.CommandCount(); t++ {
		if node := b.run.AbortableAt(effects.Ticket(t)); node != plan.NoNode {
			into = append(into, choice{move: moveAbort, node: node, nth: t})
		}
	}
	if s.SystemFault != "" {
		for i := range b.run.SystemFaults(s.SystemFault) {
			into = append(into, choice{move: moveSystemFault, nth: i})
		}
	}
	for _, c := range w.Conns {
		if s.Cut && !c.Closed && !c.Dead && c.Server >= 0 && w.IsRunning(c.Client, c.Incarnation) {
			into = append(into, choice{move: moveCutConn, nth: int(c.ID)})
		}
	}
	for _, l := range w.Links {
		if s.Cut && !l.Lost && !l.Dropped && w.IsRunning(l.From, l.FromIncarnation) {
			into = append(into, choice{move: moveCutLink, nth: int(l.ID)})
		}
	}
	for _, n := range w.Nodes {
		if s.Drain && n.Up && n.IsReceiver() && !n.Leaving {
			into = append(into, choice{move: moveDrain, node: n.ID})
		}
	}
	for _, n := range w.Nodes {
		canStrike := s.Stall || s.canCrash(b.run, n)
		if !n.Up || !canStrike {
			continue
		}
		if s.Stall {
			into = append(into, choice{move: moveStall, node: n.ID})
			continue
		}
		into = append(into, choice{move: moveCrash, node: n.ID})
		for _, c := range into {
			if c.stepsMachine && c.node == n.ID {
				for nth := 1; nth <= crashEffectsMax; nth++ {
					into = append(into, choice{move: moveCrashIn, seq: c.seq, node: n.ID, nth: nth})
				}
			}
		}
	}
	return into
}

// crashEffectsMax is larger than the number of effects of any step in a scope. A crash after an effect that the step
// does not have turns out to be no choice.
const crashEffectsMax = 16

// nextDeadline returns the next deadline of a node: that of its machine or of one of its links.
func nextDeadline(n *world.Node) (effects.Time, bool) {
	at, ok := n.Machine.Deadline()
	for _, l := range n.Links {
		if l.Comm == nil || l.FromIncarnation != n.Incarnation {
			continue
		}
		if t, is := l.Comm.Machine.Deadline(); is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

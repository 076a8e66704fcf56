package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// A branch is one situation of an exploration: a world, and what the scope still allows
// to go wrong in it.
type branch struct {
	w        *world `snap:"whole"`
	left     int    // faults that may still strike
	frozen   int32  // the node that is stalled, or noNode
	frozenAt int64  `snap:"instant"`

	stepwise bool `snap:"skip"` // do nothing together; tests compare
}

// move is a kind of choice.
type move uint8

const (
	moveDeliver move = iota + 1 // the head of a channel arrives, or an engine does its next thing
	moveTick                    // time passes to the earliest deadline, and its machine is told
	moveWait                    // time passes by one unit, to no deadline
	moveThaw                    // the stalled process goes on
	// Faults.
	moveStrike  // a fault that can strike in what happens next does
	moveCrash   // a node dies
	moveCrashIn // a node dies in the middle of a step, nth effects of it carried out
	moveDrain   // a node is told to drain
	moveAbort   // an engine changes its mind
	moveCutConn
	moveCutLink
	moveStall // a process stops; its hardware does not
)

// choice is one of the things that can happen next.
type choice struct {
	move move
	seq  uint64 // of the delivery
	node int32
	nth  int // effects before a crash; the ticket, connection, link or fault concerned

	steps bool // it gives a machine an event, on node
}

func (c choice) fault() bool { return c.move >= moveStrike }

// channelOf numbers what keeps its order, as the real transports and planes do: the
// completions of a node's data plane, an engine's commands, what a client's transport
// notices, the two stores of a page. Zero: free to overtake everything.
func (w *world) channelOf(d *delivery) uint64 {
	const plane, mailbox, notice, store, words, batches = 1 << 56, 2 << 56, 3 << 56, 4 << 56, 5 << 56, 6 << 56
	node := uint64(uint32(d.node))
	switch d.kind {
	case kindImported, kindLinkLost, kindTransferDone, kindSettled, kindLanded, kindRevoked, kindDropped:
		return plane | node
	case kindCommand:
		return mailbox | node
	case kindReplied, kindUnanswered:
		return notice | node
	case kindConnLost:
		if c := w.connOf(d.a); c != nil && c.client == d.node {
			return notice | node
		}
	case kindStore, kindLoad:
		return store | d.a<<16 | d.b
	case kindCommSay, kindCommEnd:
		return words | d.a<<1
	case kindCommHear:
		return words | d.a<<1 | 1
	case kindCommEnded:
		return batches | d.a
	default:
	}
	return 0
}

// choices lists everything that can happen next, in an order that depends on nothing but
// the way here: positions in it are what paths consist of.
func (b *branch) choices(s *Scope, into []choice) []choice {
	w := b.w
	under := w.queue.heap
	slices.SortFunc(under, func(p, q queued) int { return int(p.seq) - int(q.seq) })
	for _, q := range under {
		d := &w.queue.slab[q.slot]
		if b.stalls(d) || !w.head(q) || w.timesOut(d) {
			continue
		}
		steps := d.kind <= kindDropped || d.kind == kindArrive || d.kind == kindTold || !b.stepwise && commands(d.kind)
		into = append(into, choice{move: moveDeliver, seq: q.seq, node: w.stepper(d), steps: steps})
		if d.kind == kindLinkLost && d.a != 0 && w.links[d.a-1].dropped {
			into = append(into, choice{move: moveDeliver, seq: q.seq, node: d.node, steps: true, nth: 1})
		}
	}
	if len(into) == 0 {
		into = b.timeouts(into)
	}
	if s.Timers != TimersIdle || len(into) == 0 {
		into = b.ticks(into)
	}
	if s.Timers == TimersUnits && w.unfinished > 0 && b.waits() {
		into = append(into, choice{move: moveWait})
	}
	if b.frozen != plan.Nobody {
		into = append(into, choice{move: moveThaw, node: b.frozen})
	}
	if b.left > 0 {
		into = b.faults(s, into)
	}
	return into
}

// timesOut says whether a delivery is the end of a driver's patience: that comes when nothing else can.
func (w *world) timesOut(d *delivery) bool { return d.kind == kindCommForm && d.c == formLate }

// timeouts adds the patience of drivers that may end now.
func (b *branch) timeouts(into []choice) []choice {
	for _, q := range b.w.queue.heap {
		if d := &b.w.queue.slab[q.slot]; b.w.timesOut(d) && !b.stalls(d) {
			into = append(into, choice{move: moveDeliver, seq: q.seq, node: b.w.stepper(d)})
		}
	}
	return into
}

// stepper is the node whose machine a delivery steps, if it steps one.
func (w *world) stepper(d *delivery) int32 {
	switch d.kind {
	case kindStart:
		return w.jobs[d.a].sender
	case kindPosted:
		if d.b < uint64(len(w.jobs)) {
			return w.jobs[d.b].receiver
		}
		return plan.Nobody
	case kindArrive, kindTold:
		return w.conns[d.a-1].server
	case kindAnswer:
		return w.conns[d.a-1].client
	default:
		return d.node
	}
}

// commands says whether engines give commands in what happens there.
func commands(k kind) bool {
	switch k {
	case kindStart, kindFilled, kindFetch, kindLetGo, kindPosted, kindItem:
		return true
	default:
		return false
	}
}

// stalls says whether d must wait for the stalled process. Hardware need not.
func (b *branch) stalls(d *delivery) bool {
	return b.frozen != plan.Nobody && d.kind.ofProcess() && b.w.stepper(d) == b.frozen
}

// waits says whether the next unit of time has no deadline in it but one is near enough
// for it to matter when.
func (b *branch) waits() bool {
	near := false
	for _, n := range b.w.nodes {
		if !n.up || n.id == b.frozen {
			continue
		}
		if t, ok := b.w.deadline(n); ok {
			in := effects.Duration(n.when(t) - b.w.now)
			if in <= unit {
				return false
			}
			near = near || in <= unitsMax*unit
		}
	}
	return near
}

// ticks adds the nodes that have the earliest deadline. Deadlines of different nodes never
// pass each other, deliveries may come after any number of them.
func (b *branch) ticks(into []choice) []choice {
	var earliest int64
	first := len(into)
	for _, n := range b.w.nodes {
		if !n.up || n.id == b.frozen {
			continue
		}
		deadline, ok := b.w.deadline(n)
		t := n.when(deadline)
		switch {
		case !ok:
		case len(into) == first || t < earliest:
			into = append(into[:first], choice{move: moveTick, node: n.id, steps: true})
			earliest = t
		case t == earliest:
			into = append(into, choice{move: moveTick, node: n.id, steps: true})
		}
	}
	return into
}

// faults adds what may go wrong now.
func (b *branch) faults(s *Scope, into []choice) []choice {
	w := b.w
	for _, f := range s.Strikes {
		for _, c := range into {
			if c.move == moveDeliver || c.move == moveTick {
				into = append(into, choice{move: moveStrike, seq: c.seq, node: c.node, nth: int(f)})
			}
		}
	}
	for i := range w.commands {
		c := &w.commands[i]
		if s.Abort && w.nodes[c.node].own == nil && !c.over && w.lives(c.node, c.life) &&
			(c.want == plan.WantReserve || c.want == plan.WantPut || c.want == plan.WantGet || c.want == plan.WantFetch) {
			into = append(into, choice{move: moveAbort, node: c.node, nth: i + 1})
		}
	}
	for _, c := range w.conns {
		if s.Cut && !c.closed && !c.dead && c.server >= 0 && w.lives(c.client, c.life) {
			into = append(into, choice{move: moveCutConn, nth: int(c.id)})
		}
	}
	for _, l := range w.links {
		if s.Cut && !l.lost && !l.dropped && w.lives(l.from, l.fromLife) {
			into = append(into, choice{move: moveCutLink, nth: int(l.id)})
		}
	}
	for _, n := range w.nodes {
		if s.Drain && n.up && n.receives() && !n.leaving {
			into = append(into, choice{move: moveDrain, node: n.id})
		}
	}
	for _, n := range w.nodes {
		may := s.Stall || s.mayDie(n)
		if !n.up || !may {
			continue
		}
		if s.Stall {
			into = append(into, choice{move: moveStall, node: n.id})
			continue
		}
		into = append(into, choice{move: moveCrash, node: n.id})
		for _, c := range into {
			if c.steps && c.node == n.id {
				for nth := 1; nth <= crashesIn; nth++ {
					into = append(into, choice{move: moveCrashIn, seq: c.seq, node: n.id, nth: nth})
				}
			}
		}
	}
	return into
}

// crashesIn is more effects than a step of a scope has: the choices beyond its last one
// are none.
const crashesIn = 16

// deadline is when a node wants to be woken next, its machine or one of its links'.
func (w *world) deadline(n *node) (effects.Time, bool) {
	at, ok := n.machine.Deadline()
	for _, l := range n.links {
		if l.comm == nil || l.fromLife != n.life {
			continue
		}
		if t, is := l.comm.m.Deadline(); is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

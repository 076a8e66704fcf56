package sim

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/receiver"
)

// A branch is one situation of an exploration: a world, and what the scope still allows
// to go wrong in it.
type branch struct {
	w        *world
	left     int   // faults that may still strike
	frozen   int32 // the node that is stalled, or noNode
	frozenAt int64

	stepwise bool // do nothing together; tests compare
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
	const plane, mailbox, notice, store = 1 << 56, 2 << 56, 3 << 56, 4 << 56
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
	case kindStore:
		return store | d.a<<16 | d.b
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
		if b.stalls(d) || !w.head(q) {
			continue
		}
		steps := d.kind <= kindDropped || d.kind == kindArrive
		into = append(into, choice{move: moveDeliver, seq: q.seq, node: w.stepper(d), steps: steps})
		if d.kind == kindLinkLost && d.a != 0 && w.links[d.a-1].dropped {
			into = append(into, choice{move: moveDeliver, seq: q.seq, node: d.node, steps: true, nth: 1})
		}
	}
	if s.Timers != TimersIdle || len(into) == 0 {
		into = b.ticks(into)
	}
	if s.Timers == TimersUnits && w.unfinished > 0 && b.waits() {
		into = append(into, choice{move: moveWait})
	}
	if b.frozen != noNode {
		into = append(into, choice{move: moveThaw, node: b.frozen})
	}
	if b.left > 0 {
		into = b.faults(s, into)
	}
	return into
}

// stepper is the node whose machine a delivery steps, if it steps one.
func (w *world) stepper(d *delivery) int32 {
	switch d.kind {
	case kindArrive:
		return w.conns[d.a-1].server
	case kindAnswer:
		return w.conns[d.a-1].client
	default:
		return d.node
	}
}

// stalls says whether d must wait for the stalled process. Hardware need not.
func (b *branch) stalls(d *delivery) bool {
	return b.frozen != noNode && d.kind < kindCrash && b.w.stepper(d) == b.frozen
}

// waits says whether the next unit of time has no deadline in it but one is near enough
// for it to matter when.
func (b *branch) waits() bool {
	near := false
	for _, n := range b.w.nodes {
		if !n.up || n.id == b.frozen {
			continue
		}
		if t, ok := n.machine.Deadline(); ok {
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
		deadline, ok := n.machine.Deadline()
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
		if s.Abort && !c.over && w.lives(c.node, c.life) && (c.want == wantReserve || c.want == wantPut || c.want == wantGet) {
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
		if !n.up || n.sender && !s.CrashSender && !s.Stall || !n.sender && !s.CrashReceiver && !s.Stall {
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

// apply makes the choice. It returns false if it is none after all: the step has fewer
// effects, or the fault no occasion in it.
func (b *branch) apply(c choice) bool {
	w := b.w
	if c.fault() {
		b.left--
	}
	switch c.move {
	case moveDeliver:
		b.deliver(c)
	case moveTick:
		b.tick(w.nodes[c.node])
	case moveWait:
		w.now += int64(unit)
	case moveStrike:
		return b.strike(c)
	case moveCrash:
		w.crash(w.nodes[c.node])
	case moveCrashIn:
		n := w.nodes[c.node]
		n.trap = trap{moment{is: true}, uint64(c.nth)}
		if c.seq != 0 {
			b.deliver(c)
		} else {
			b.tick(n)
		}
		b.settle()
		if n.trap.is {
			return false
		}
	case moveAbort:
		w.giveAbort(w.nodes[c.node], effects.Ticket(c.nth))
	case moveCutConn:
		cut := w.conns[c.nth-1]
		w.journal.note(w.now, kindCutConn, cut.client, cut.id, 0, 0)
		w.cut(cut, false)
	case moveCutLink:
		l := w.links[c.nth-1]
		w.journal.note(w.now, kindCutLink, l.from, l.id, 0, 0)
		w.endLink(w.nodes[l.from], l, still, true)
	case moveStall:
		b.frozen, b.frozenAt = c.node, w.now
		w.journal.note(w.now, kindPause, c.node, 0, 0, 0)
	case moveThaw:
		w.nodes[c.node].frozen += w.now - b.frozenAt
		b.frozen, b.frozenAt = noNode, 0
		w.journal.note(w.now, kindThaw, c.node, 0, 0, 0)
	}
	b.settle()
	return true
}

// deliver takes one delivery. What an engine or the proxy does between two waits needs no
// wait of its own: to do a thing later, or to do it and be heard later, is the same to
// everybody else, so its command is heard at once unless others are ahead of it.
func (b *branch) deliver(c choice) {
	w := b.w
	before := w.queue.seq
	d := w.queue.take(c.seq)
	switch {
	case d.kind == kindFetch:
		b.fetch(int(d.a))
	case c.move == moveDeliver && c.nth > 0: // What the driver may do or not, it does not.
		w.seed = restlessSeed
		w.deliver(d)
		w.seed = stillSeed
	default:
		w.deliver(d)
	}
	if b.stepwise || d.kind != kindStart && d.kind != kindFilled && d.kind != kindFetch && d.kind != kindLetGo && d.kind != kindPosted {
		return
	}
	for i := 0; i < len(w.queue.heap) && w.failure == nil; i++ {
		q := w.queue.heap[i]
		next := &w.queue.slab[q.slot]
		if q.seq > before && (next.kind == kindCommand || next.kind == kindFetch && d.kind == kindPosted) && !b.stalls(next) && w.head(q) {
			b.deliver(choice{seq: q.seq})
			i = -1
		}
	}
}

// head says whether nothing is ahead of q in its channel.
func (w *world) head(q queued) bool {
	ch := w.channelOf(&w.queue.slab[q.slot])
	return ch == 0 || !slices.ContainsFunc(w.queue.heap, func(o queued) bool {
		return o.seq < q.seq && w.channelOf(&w.queue.slab[o.slot]) == ch
	})
}

// fetch is the decode engine wanting a request's chunks, and patient.
func (b *branch) fetch(job int) {
	w := b.w
	j := &w.jobs[job]
	n := w.nodes[j.receiver]
	w.give(n, command{want: wantGet, job: job, body: &receiver.Get{Request: j.name, Keys: j.keys, Wait: n.cfg.GetWaitMax}}, n.cfg.GetWaitMax)
}

// strike lets a fault strike wherever it can in what happens next.
func (b *branch) strike(c choice) bool {
	w, f := b.w, Fault(c.nth)
	before := w.result.Faults[f.String()]
	w.plan.Rates[f] = 1000
	if c.seq != 0 {
		b.deliver(choice{seq: c.seq})
	} else {
		b.tick(w.nodes[c.node])
	}
	b.settle()
	w.plan.Rates[f] = 0
	return w.result.Faults[f.String()] > before
}

func (b *branch) tick(n *node) {
	t, _ := n.machine.Deadline()
	b.w.now = max(b.w.now, n.when(t))
	n.tickGen++
	b.w.deliver(delivery{kind: kindTick, node: n.id, life: n.life, a: n.tickGen})
}

// settle delivers a request that has arrived, as nothing that happens between could tell:
// one that has arrived and one that is about to are the same to everybody else. (That is not so
// of an answer: once it is in the mailbox, closing the connection does not stop it.) What nobody will see any more is forgotten, and so are ticks: they follow from
// the deadlines.
func (b *branch) settle() {
	w := b.w
	for again := true; again && w.failure == nil; {
		again = false
		for i := 0; i < len(w.queue.heap); i++ {
			q := w.queue.heap[i]
			d := &w.queue.slab[q.slot]
			gone := d.node >= 0 && d.kind < kindCrash && d.kind != kindStart && !w.lives(d.node, d.life) || !b.stepwise && w.idle(d)
			switch {
			case d.kind == kindTick || gone:
				w.queue.take(q.seq)
				i--
			case d.kind == kindReceived:
				w.deliver(w.queue.take(q.seq))
				again = true
				i = len(w.queue.heap)
			}
		}
	}
	for _, n := range w.nodes {
		n.tickAt = 0
	}
}

// idle says whether nothing will come of d, whenever it is delivered: it is for a connection
// that is closed or silently dead, of which no event may follow.
func (w *world) idle(d *delivery) bool {
	switch d.kind {
	case kindAnswer:
		c := w.conns[d.a-1]
		return c.dead || c.closed || !w.lives(c.client, c.life)
	case kindArrive:
		return w.conns[d.a-1].dead
	default:
		return false
	}
}

// take removes the delivery with that number, wherever it stands.
func (q *queue) take(seq uint64) delivery {
	i := slices.IndexFunc(q.heap, func(x queued) bool { return x.seq == seq })
	if i < 0 {
		panic(fmt.Sprintf("BUG: no delivery %d is under way", seq))
	}
	slot := q.heap[i].slot
	q.heap = slices.Delete(q.heap, i, i+1)
	d := q.slab[slot]
	q.slab[slot] = delivery{}
	q.spare = append(q.spare, slot)
	return d
}

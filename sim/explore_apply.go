package sim

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

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
		n.trap = trap{Moment: plan.Moment{Is: true}, skip: uint64(c.nth)}
		if c.seq != 0 {
			b.deliver(c)
		} else {
			b.tick(n)
		}
		b.settle()
		if n.trap.Is {
			return false
		}
	case moveDrain:
		w.leave(w.nodes[c.node], 5*effects.Second, false)
	case moveAbort:
		w.giveAbort(w.nodes[c.node], effects.Ticket(c.nth))
	case moveCutConn:
		cut := w.conns[c.nth-1]
		w.journal.note(w.now, kindCutConn, cut.client, cut.id, 0, 0)
		w.cut(cut, false)
	case moveCutLink:
		l := w.links[c.nth-1]
		w.journal.note(w.now, kindCutLink, l.from, l.id, 0, 0)
		w.endLink(w.nodes[l.from], l, draw.Still, true)
	case moveStall:
		b.frozen, b.frozenAt = c.node, w.now
		w.journal.note(w.now, kindPause, c.node, 0, 0, 0)
	case moveThaw:
		w.nodes[c.node].frozen += w.now - b.frozenAt
		b.frozen, b.frozenAt = plan.Nobody, 0
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
		b.fetch(&d)
	case c.move == moveDeliver && c.nth > 0: // What the driver may do or not, it does not.
		w.seed = draw.RestlessSeed
		w.deliver(d)
		w.seed = draw.StillSeed
	default:
		w.deliver(d)
	}
	if b.stepwise || !commands(d.kind) {
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
func (b *branch) fetch(d *delivery) {
	w, job := b.w, int(d.a)
	j := &w.jobs[job]
	n := w.nodes[j.receiver]
	if n.delays && !j.take {
		w.fetchChunks(job, int(d.c), d.b != 0)
		return
	}
	w.give(n, command{want: plan.WantGet, job: job, body: &receiver.Get{Request: j.name, Keys: j.keys,
		Wait: n.cfg.GetWaitMax}}, n.cfg.GetWaitMax)
}

// strike lets a fault strike wherever it can in what happens next.
func (b *branch) strike(c choice) bool {
	w, f := b.w, plan.Fault(c.nth)
	before := w.result.faults[f]
	w.plan.Rates[f] = 1000
	if c.seq != 0 {
		b.deliver(choice{seq: c.seq})
	} else {
		b.tick(w.nodes[c.node])
	}
	b.settle()
	w.plan.Rates[f] = 0
	return w.result.faults[f] > before
}

func (b *branch) tick(n *node) {
	t, _ := b.w.deadline(n)
	b.w.now = max(b.w.now, n.when(t))
	for _, l := range n.links {
		if c := l.comm; c != nil && l.fromLife == n.life {
			if at, ok := c.m.Deadline(); ok && at <= t {
				b.w.commTick(l)
			}
		}
	}
	if at, ok := n.machine.Deadline(); !ok || at > t {
		return
	}
	n.tickGen++
	b.w.deliver(delivery{kind: kindTick, node: n.id, life: n.life, a: n.tickGen})
}

// settle delivers a request that has arrived, as nothing that happens between could tell:
// one that has arrived and one that is about to are the same to everybody else. (That is
// not so of an answer: once it is in the mailbox, closing the connection does not stop it.)
// What nobody will see any more is forgotten, and so are ticks: they follow from the
// deadlines.
func (b *branch) settle() {
	w := b.w
	for again := true; again && w.failure == nil; {
		again = false
		for i := 0; i < len(w.queue.heap); i++ {
			q := w.queue.heap[i]
			d := &w.queue.slab[q.slot]
			gone := d.node >= 0 && d.kind.ofProcess() && d.kind != kindStart && !w.lives(d.node, d.life) ||
				!b.stepwise && w.idle(d)
			switch {
			case d.kind == kindTick || d.kind == kindCommTick || gone:
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
	case kindCommForm:
		return w.links[d.a-1].comm.epoch(d.b).decided
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

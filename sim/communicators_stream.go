package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Hardware of a plane of communicators: a stream of batches that stores and loads page by page under an epoch. No
// process can watch it, and only a communicator that is proven gone stops it.

// How an initiator looks whether a communicator is there: at once, when the target's end is, and when its time is up.
const (
	formLooks = iota
	formMet
	formLate
	formTimeout = 200 * effects.Millisecond
)

// forms says how the forming of an epoch ended at its initiator: well if both ends are there.
func (w *world) forms(l *link, epoch, why uint64) {
	c, n := l.comm, w.nodes[l.from]
	e := c.epoch(epoch)
	if e.decided {
		return
	}
	code := effects.OK
	switch {
	case w.struck(plan.FaultImport, l.subject(), epoch):
		code = effects.Faulted
	case !l.target.mapped() || e.failed || e.leaves || e.gone || why == formLate:
		code = effects.Unreachable
	case !e.made:
		e.meets = true
		w.forNode(n, formTimeout, delivery{kind: kindCommForm, a: l.id, b: epoch, c: formLate})
		return
	}
	e.decided = true
	e.up = code == effects.OK
	if !e.up {
		w.epochOver(l, e) // What cannot be formed leaves nothing.
	}
	w.feed(l, communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: code})
}

// runStream has hardware begin with the oldest batch.
func (w *world) runStream(l *link) {
	c := l.comm
	if c.halted || len(c.stream) == 0 {
		return
	}
	w.nextStep(l, c.stream[0], 0)
}

func (w *world) nextStep(l *link, b commBatch, step int) {
	t := w.transfers[b.t-1]
	about := b.number<<8 | uint64(step)
	late := effects.Duration(0)
	if d, yes := w.strikes(plan.FaultLateStore, t.name, about); yes {
		late = d.Span(0, 3*effects.Second)
	}
	after := late + draw.Hash(w.seed, draw.Store, uint64(t.name), about).Heavy(w.plan.Device)
	w.after(after, delivery{kind: kindCommStep, node: plan.Nobody, a: l.id, b: b.number, c: uint64(step)})
}

// streamStep moves half a page, if anything still leads there.
func (w *world) streamStep(l *link, number uint64, step int) {
	c := l.comm
	if len(c.stream) == 0 || c.stream[0].number != number {
		return // Its epoch is over.
	}
	b := c.stream[0]
	e, t := c.epoch(b.epoch), w.transfers[b.t-1]
	pair, half := b.first+step/2, step%2
	blocked := !t.remote.mapped() || !c.mapped && e.gone
	if half == 1 && w.struck(plan.FaultHalfPage, t.name, b.number<<8|uint64(step)) {
		blocked = true
	}
	switch {
	case blocked:
	case t.read:
		if t.local.mapped() {
			w.oracles.onLoad(t, pair)
			t.fetchHalf(pair, half)
		}
	default:
		w.oracles.onStore(t, pair, half)
		w.moveHalf(t, pair, half)
	}
	switch last := step+1 == 2*b.pairs; {
	case b.broken:
		c.halted = true // Its call has failed: what it had begun ends here, and nothing says when.
	case blocked:
		c.halted = true
		e.breaks(t)
		w.batchEnds(l, b, false)
	case last:
		c.stream = append(c.stream[:0], c.stream[1:]...)
		w.flown(t, b)
		w.batchEnds(l, b, true)
		w.runStream(l)
	case !c.halted:
		w.nextStep(l, b, step+1)
	}
}

// batchEnds has the initiator hear of it, behind what it was told before.
func (w *world) batchEnds(l *link, b commBatch, well bool) {
	c := l.comm
	x := delivery{kind: kindCommEnded, node: l.from, life: l.fromLife, a: l.id, b: b.epoch}
	if well {
		x.c = 1
	}
	c.ends = max(c.ends, w.now+int64(w.commDraw(l).Heavy(w.plan.Device)))
	w.queue.push(c.ends, x)
}

// flown: hardware has nothing of a batch any more.
func (w *world) flown(t *transfer, b commBatch) {
	t.flying--
	if !t.read {
		for pair := range b.pairs {
			w.oracles.onFlown(t, b.first+pair)
		}
	}
}

// outOfReach: what hardware still has of an epoch does not come through any more, and fails when it tries.
func (w *world) outOfReach(l *link, e *commEpoch) {
	for _, b := range l.comm.stream {
		if t := w.transfers[b.t-1]; b.epoch == e.number && !t.read {
			for pair := range b.pairs {
				w.oracles.onFlown(t, b.first+pair)
			}
		}
	}
}

// met has an initiator look that waits for the target's end.
func (w *world) met(l *link, e *commEpoch) {
	if e.meets && !e.decided && w.lives(l.from, l.fromLife) {
		w.forNode(w.nodes[l.from], 0, delivery{kind: kindCommForm, a: l.id, b: e.number, c: formMet})
	}
}

// epochOver: nothing of the initiator's hardware touches anything by it any more.
func (w *world) epochOver(l *link, e *commEpoch) {
	c := l.comm
	e.over = true
	kept := c.stream[:0]
	for _, b := range c.stream {
		if b.epoch != e.number {
			kept = append(kept, b)
			continue
		}
		w.flown(w.transfers[b.t-1], b)
	}
	if c.stream = kept; len(kept) == 0 {
		c.halted = false
	}
}

// tearDown ends an epoch: the stream is aborted, the end destroyed, and what was in the network has arrived. That takes
// time, and now and then there is no proof of it.
func (w *world) tearDown(n *node, l *link, d communicator.TearDown) {
	c := l.comm
	c.epoch(d.Epoch).fenced = true
	at := effects.Duration(0)
	if d.Flying > 0 {
		at = w.commDraw(l).Heavy(w.plan.Net)
		w.forNode(n, at, delivery{kind: kindCommAbort, a: l.id, b: d.Epoch})
		at += 20 * effects.Millisecond
	}
	at += w.commDraw(l).Heavy(2 * w.plan.Net)
	if s, yes := w.strikes(plan.FaultRevokeHeldUp, l.subject(), d.Epoch); yes {
		w.forNode(n, at, delivery{kind: kindCommStuck, a: l.id, b: d.Epoch})
		at += s.Span(0, 2*effects.Second)
	}
	x := delivery{kind: kindCommProof, a: l.id, b: d.Epoch}
	if d.Flying > 0 && w.struck(plan.FaultUnproven, l.subject(), d.Epoch) {
		x.c = 1
		w.callOperator(n)
	}
	w.forNode(n, at, x)
}

// callOperator has somebody restart a process that has memory which is never proven its own again.
func (w *world) callOperator(n *node) {
	w.after(4*effects.Second, delivery{kind: kindCommRestart, node: n.id, life: n.life, a: 1})
}

// operator restarts it.
func (w *world) operator(d delivery) {
	if n := w.nodes[d.node]; n.up && n.life == d.life {
		w.result.fault(plan.FaultUnproven)
		w.die(n)
	}
}

// subject names a link in draws.
func (l *link) subject() plan.Subject { return plan.AboutNode(l.from, l.fromLife) }

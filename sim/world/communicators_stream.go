package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// The hardware of a plane of communicators is a stream of batches that stores and loads page by page under an epoch. No
// process can observe the stream, and only a communicator that is proven gone stops the stream.

// The reasons why an initiator checks whether a communicator is formed: at once, when the target's end is there, and
// when the time is up.
const (
	formLooks = iota
	formMet
	FormLate
	formTimeout = 200 * effects.Millisecond
)

// forms decides how the forming of an epoch ended at its initiator: successfully if both ends are there.
func (l *Link) forms(w *World, epoch, why uint64) {
	c, n := l.Comm, w.Nodes[l.From]
	e := c.Epoch(epoch)
	if e.Decided {
		return
	}
	code := effects.OK
	switch {
	case w.Struck(plan.FaultImport, l.subject(), epoch):
		code = effects.Faulted
	case !l.Target.Mapped() || e.failed || e.leaves || e.gone || why == FormLate:
		code = effects.Unreachable
	case !e.made:
		e.meets = true
		w.ForNode(n, formTimeout, Delivery{Kind: KindCommForm, A: l.ID, B: epoch, C: FormLate})
		return
	}
	e.Decided = true
	e.Up = code == effects.OK
	if !e.Up {
		l.epochOver(w, e) // An epoch that cannot be formed leaves nothing behind.
	}
	l.feed(w, communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: code})
}

// runStream starts the oldest batch of the stream.
func (l *Link) runStream(w *World) {
	c := l.Comm
	if c.halted || len(c.Stream) == 0 {
		return
	}
	l.nextStep(w, c.Stream[0], 0)
}

// nextStep schedules the move of half a page.
func (l *Link) nextStep(w *World, b CommBatch, step int) {
	t := w.Transfers[b.t-1]
	about := b.number<<8 | uint64(step)
	late := effects.Duration(0)
	if d, yes := w.Strikes(plan.FaultLateStore, t.Name, about); yes {
		late = d.Span(0, 3*effects.Second)
	}
	after := late + draw.Hash(w.Seed, draw.Store, uint64(t.Name), about).Heavy(w.Setting.Device)
	w.After(after, Delivery{Kind: kindCommStep, Node: plan.Nobody, A: l.ID, B: b.number, C: uint64(step)})
}

// streamStep moves half a page, if the pages can still be reached.
func (l *Link) streamStep(w *World, number uint64, step int) {
	c := l.Comm
	if len(c.Stream) == 0 || c.Stream[0].number != number {
		return // The epoch is over.
	}
	b := c.Stream[0]
	e, t := c.Epoch(b.Epoch), w.Transfers[b.t-1]
	pair, half := b.first+step/2, step%2
	blocked := !t.Remote.Mapped() || !c.mapped && e.gone
	if half == 1 && w.Struck(plan.FaultHalfPage, t.Name, b.number<<8|uint64(step)) {
		blocked = true
	}
	switch {
	case blocked:
	case t.Read:
		if t.Local.Mapped() {
			OnLoaded.Report(&w.Panel, oracle.Nobody, Loaded{t, pair})
			t.fetchHalf(pair, half)
		}
	default:
		OnStored.Report(&w.Panel, oracle.Nobody, Stored{t, pair, half})
		t.moveHalf(w, pair, half)
	}
	switch last := step+1 == 2*b.pairs; {
	case b.broken:
		c.halted = true // The call has failed: what the call had begun ends here without a report.
	case blocked:
		c.halted = true
		e.breaks(t)
		l.batchEnds(w, b, false)
	case last:
		c.Stream = append(c.Stream[:0], c.Stream[1:]...)
		t.flown(w, b)
		l.batchEnds(w, b, true)
		l.runStream(w)
	case !c.halted:
		l.nextStep(w, b, step+1)
	}
}

// batchEnds reports the end of a batch to the initiator, after all earlier reports.
func (l *Link) batchEnds(w *World, b CommBatch, well bool) {
	c := l.Comm
	x := Delivery{Kind: KindCommEnded, Node: l.From, Life: l.FromLife, A: l.ID, B: b.Epoch}
	if well {
		x.C = 1
	}
	c.ends = max(c.ends, w.Now+int64(l.commDraw(w).Heavy(w.Setting.Device)))
	w.Queue.Push(c.ends, x)
}

// flown records that the hardware has finished with a batch.
func (t *Transfer) flown(w *World, b CommBatch) {
	t.Flying--
	if !t.Read {
		for pair := range b.pairs {
			OnFlown.Report(&w.Panel, oracle.Nobody, Flown{t, b.first + pair})
		}
	}
}

// outOfReach records that stores of an epoch that the hardware still has cannot reach the target any more. The
// remaining stores fail when the hardware tries to make them.
func (l *Link) outOfReach(w *World, e *CommEpoch) {
	for _, b := range l.Comm.Stream {
		if t := w.Transfers[b.t-1]; b.Epoch == e.Number && !t.Read {
			for pair := range b.pairs {
				OnFlown.Report(&w.Panel, oracle.Nobody, Flown{t, b.first + pair})
			}
		}
	}
}

// met lets an initiator that waits for the target's end check again.
func (l *Link) met(w *World, e *CommEpoch) {
	if e.meets && !e.Decided && w.Lives(l.From, l.FromLife) {
		w.ForNode(w.Nodes[l.From], 0, Delivery{Kind: KindCommForm, A: l.ID, B: e.Number, C: formMet})
	}
}

// epochOver records that the initiator's hardware touches nothing through an epoch any more.
func (l *Link) epochOver(w *World, e *CommEpoch) {
	c := l.Comm
	e.Over = true
	kept := c.Stream[:0]
	for _, b := range c.Stream {
		if b.Epoch != e.Number {
			kept = append(kept, b)
			continue
		}
		w.Transfers[b.t-1].flown(w, b)
	}
	if c.Stream = kept; len(kept) == 0 {
		c.halted = false
	}
}

// tearDown ends an epoch: the stream is aborted, the end is destroyed, and accesses in the network arrive. The teardown
// takes time, and occasionally there is no proof of its end.
func (l *Link) tearDown(w *World, n *Node, d communicator.TearDown) {
	c := l.Comm
	c.Epoch(d.Epoch).Fenced = true
	at := effects.Duration(0)
	if d.InFlight > 0 {
		at = l.commDraw(w).Heavy(w.Setting.Net)
		w.ForNode(n, at, Delivery{Kind: kindCommAbort, A: l.ID, B: d.Epoch})
		at += 20 * effects.Millisecond
	}
	at += l.commDraw(w).Heavy(2 * w.Setting.Net)
	if s, yes := w.Strikes(plan.FaultRevokeHeldUp, l.subject(), d.Epoch); yes {
		w.ForNode(n, at, Delivery{Kind: kindCommStuck, A: l.ID, B: d.Epoch})
		at += s.Span(0, 2*effects.Second)
	}
	x := Delivery{Kind: kindCommProof, A: l.ID, B: d.Epoch}
	if d.InFlight > 0 && w.Struck(plan.FaultUnproven, l.subject(), d.Epoch) {
		x.C = 1
		n.callOperator(w)
	}
	w.ForNode(n, at, x)
}

// callOperator schedules that an operator restarts a process that has memory which is never proven free again.
func (n *Node) callOperator(w *World) {
	w.After(4*effects.Second, Delivery{Kind: kindCommRestart, Node: n.ID, Life: n.Life, A: 1})
}

// operator restarts the process.
func (w *World) operator(d Delivery) {
	if n := w.Nodes[d.Node]; n.Up && n.Life == d.Life {
		w.Result.Fault(plan.FaultUnproven)
		n.die(w)
	}
}

// subject names a link in draws.
func (l *Link) subject() plan.Subject { return plan.AboutNode(l.From, l.FromLife) }

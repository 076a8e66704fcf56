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
	formCheckNow = iota
	formTargetReady
	FormTimedOut
	formTimeout = 200 * effects.Millisecond
)

// finishForming decides how the forming of an epoch ended at its initiator: successfully if both ends are there.
func (l *Link) finishForming(w *World, epoch, reason uint64) {
	c, n := l.Comm, w.Nodes[l.From]
	e := c.EpochAt(epoch)
	if e.Decided {
		return
	}
	code := effects.OK
	switch {
	case w.IsStruck(plan.FaultImportFailed, l.subject(), epoch):
		code = effects.Faulted
	case !l.Target.IsMapped() || e.targetFailed || e.targetLeaving || e.targetGone || reason == FormTimedOut:
		code = effects.Unreachable
	case !e.targetCreated:
		e.awaitsTarget = true
		w.QueueForNode(n, formTimeout, Delivery{Kind: KindCommFormCheck, A: l.ID, B: epoch, C: FormTimedOut})
		return
	}
	e.Decided = true
	e.Up = code == effects.OK
	if !e.Up {
		l.stopEpoch(w, e) // An epoch that cannot be formed leaves nothing behind.
	}
	l.feedEvent(w, communicator.Event{Kind: communicator.Formed, Epoch: epoch, Code: code})
}

// startOldestBatch starts the oldest batch of the stream.
func (l *Link) startOldestBatch(w *World) {
	c := l.Comm
	if c.halted || len(c.Stream) == 0 {
		return
	}
	l.scheduleStep(w, c.Stream[0], 0)
}

// scheduleStep schedules the move of half a page.
func (l *Link) scheduleStep(w *World, b CommBatch, step int) {
	t := w.Transfers[b.transfer-1]
	ordinal := b.number<<8 | uint64(step)
	delay := effects.Duration(0)
	if d, yes := w.DrawStrike(plan.FaultLateStore, t.Name, ordinal); yes {
		delay = d.Duration(0, 3*effects.Second)
	}
	after := delay + draw.Hash(w.Seed, draw.Store, uint64(t.Name), ordinal).HeavyTail(w.Conditions.DeviceTime)
	w.QueueAfter(after, Delivery{Kind: kindCommStep, Node: plan.NoNode, A: l.ID, B: b.number, C: uint64(step)})
}

// streamStep moves half a page, if the pages can still be reached.
func (l *Link) streamStep(w *World, number uint64, step int) {
	c := l.Comm
	if len(c.Stream) == 0 || c.Stream[0].number != number {
		return // The epoch is over.
	}
	b := c.Stream[0]
	e, t := c.EpochAt(b.Epoch), w.Transfers[b.transfer-1]
	pair, half := b.first+step/2, step%2
	blocked := !t.Remote.IsMapped() || !c.mapped && e.targetGone
	if half == 1 && w.IsStruck(plan.FaultHalfPage, t.Name, b.number<<8|uint64(step)) {
		blocked = true
	}
	switch {
	case blocked:
	case t.Read:
		if t.Local.IsMapped() {
			OnPageLoaded.Report(&w.Panel, oracle.NoNode, PageLoaded{t, pair})
			t.moveFlipping(w, pair, half)
		}
	default:
		OnHalfStored.Report(&w.Panel, oracle.NoNode, HalfStored{t, pair, half})
		t.moveFlipping(w, pair, half)
	}
	switch last := step+1 == 2*b.pairs; {
	case b.broken:
		c.halted = true // The call has failed: what the call had begun ends here without a report.
	case blocked:
		c.halted = true
		e.addFailed(t)
		l.reportBatchEnd(w, b, false)
	case last:
		c.Stream = append(c.Stream[:0], c.Stream[1:]...)
		t.finishBatch(w, b)
		l.reportBatchEnd(w, b, true)
		l.startOldestBatch(w)
	case !c.halted:
		l.scheduleStep(w, b, step+1)
	}
}

// reportBatchEnd reports the end of a batch to the initiator, after all earlier reports.
func (l *Link) reportBatchEnd(w *World, b CommBatch, ok bool) {
	c := l.Comm
	x := Delivery{Kind: KindCommBatchEnded, Node: l.From, Incarnation: l.FromIncarnation, A: l.ID, B: b.Epoch}
	if ok {
		x.C = 1
	}
	c.lastCompletion = max(c.lastCompletion, w.Now+int64(l.drawComm(w).HeavyTail(w.Conditions.DeviceTime)))
	w.Queue.Push(c.lastCompletion, x)
}

// finishBatch records that the hardware has finished with a batch.
func (t *Transfer) finishBatch(w *World, b CommBatch) {
	t.InFlight--
	if !t.Read {
		for pair := range b.pairs {
			OnStoreFinished.Report(&w.Panel, oracle.NoNode, StoreFinished{t, b.first + pair})
		}
	}
}

// markOutOfReach records that stores of an epoch that the hardware still has cannot reach the target any more. The
// remaining stores fail when the hardware tries to make them.
func (l *Link) markOutOfReach(w *World, e *CommEpoch) {
	for _, b := range l.Comm.Stream {
		if t := w.Transfers[b.transfer-1]; b.Epoch == e.Number && !t.Read {
			for pair := range b.pairs {
				OnStoreFinished.Report(&w.Panel, oracle.NoNode, StoreFinished{t, b.first + pair})
			}
		}
	}
}

// recheckForming lets an initiator that waits for the target's end check again.
func (l *Link) recheckForming(w *World, e *CommEpoch) {
	if e.awaitsTarget && !e.Decided && w.IsRunning(l.From, l.FromIncarnation) {
		w.QueueForNode(w.Nodes[l.From], 0, Delivery{Kind: KindCommFormCheck, A: l.ID, B: e.Number, C: formTargetReady})
	}
}

// stopEpoch records that the initiator's hardware touches nothing through an epoch any more.
func (l *Link) stopEpoch(w *World, e *CommEpoch) {
	c := l.Comm
	e.Stopped = true
	remaining := c.Stream[:0]
	for _, b := range c.Stream {
		if b.Epoch != e.Number {
			remaining = append(remaining, b)
			continue
		}
		w.Transfers[b.transfer-1].finishBatch(w, b)
	}
	if c.Stream = remaining; len(remaining) == 0 {
		c.halted = false
	}
}

// tearDownEpoch ends an epoch: the stream is aborted, the end is destroyed, and accesses in the network arrive. The
// teardown takes time, and occasionally there is no proof of its end.
func (l *Link) tearDownEpoch(w *World, n *Node, d communicator.TearDown) {
	c := l.Comm
	c.EpochAt(d.Epoch).Fenced = true
	at := effects.Duration(0)
	if d.InFlight > 0 {
		at = l.drawComm(w).HeavyTail(w.Conditions.MessageTime)
		w.QueueForNode(n, at, Delivery{Kind: kindCommAbort, A: l.ID, B: d.Epoch})
		at += 20 * effects.Millisecond
	}
	at += l.drawComm(w).HeavyTail(2 * w.Conditions.MessageTime)
	if s, yes := w.DrawStrike(plan.FaultRevokeDelayed, l.subject(), d.Epoch); yes {
		w.QueueForNode(n, at, Delivery{Kind: kindCommProofLate, A: l.ID, B: d.Epoch})
		at += s.Duration(0, 2*effects.Second)
	}
	x := Delivery{Kind: kindCommProof, A: l.ID, B: d.Epoch}
	if d.InFlight > 0 && w.IsStruck(plan.FaultCommUnproven, l.subject(), d.Epoch) {
		x.C = 1
		n.callOperator(w)
	}
	w.QueueForNode(n, at, x)
}

// callOperator schedules that an operator restarts a process that has memory which is never proven free again.
func (n *Node) callOperator(w *World) {
	w.QueueAfter(4*effects.Second, Delivery{Kind: kindCommRestart, Node: n.ID, Incarnation: n.Incarnation, A: 1})
}

// restartByOperator restarts the process.
func (w *World) restartByOperator(d Delivery) {
	if n := w.Nodes[d.Node]; n.Up && n.Incarnation == d.Incarnation {
		w.Result.CountFault(plan.FaultCommUnproven)
		n.endProcess(w)
	}
}

// subject names a link in draws.
func (l *Link) subject() plan.Subject { return plan.AboutNode(l.From, l.FromIncarnation) }

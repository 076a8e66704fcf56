package communicator

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A transfer is a push or a read that the machine requested, cut into batches. The batches of a link are submitted in
// order and end in order. A batch of a fenced communicator is submitted once more on the next communicator, as long as
// the machine was not told that the transfer ended: puts and gets may be repeated.
type transfer struct {
	corr     effects.Corr
	grant    effects.GrantID
	since    effects.Time // the grant was given no earlier
	notAfter effects.Time
	timer    kernel.TimerID `snap:"set"`
	batches  int

	doneBatches int // batches that have ended well, from the first on
	sentBatches int // batches submitted; those from done on are in flight, or belong to an epoch that is torn down
	inFlight    int // batches that the hardware may still be accessing

	reported bool         // TransferDone was posted
	code     effects.Code // the code of that TransferDone
}

// isComplete reports whether all batches have ended well.
func (t *transfer) isComplete() bool { return t.doneBatches == t.batches }

// startTransfer accepts a transfer of the machine.
func (l *Initiator) startTransfer(now effects.Time, ev *Event, out *Effects) {
	h, t := l.transfers.Add()
	if t == nil { // The driver passes no more transfers than the rules allow.
		full := Post{Kind: PostTransferDone, Corr: ev.Corr, Code: effects.TooMany, Settled: true, At: now}
		out.Posts = append(out.Posts, full)
		return
	}
	*t = transfer{corr: ev.Corr, grant: ev.Grant, since: ev.Since, notAfter: ev.NotAfter, batches: ev.Batches}
	l.transfers.PushBack(&l.queue, h)
	switch {
	case l.final:
		l.completeTransfer(now, h, l.endCode, out)
	case l.isRevoked(t):
		l.completeTransfer(now, h, effects.Withdrawn, out)
	case t.isComplete():
		l.completeTransfer(now, h, effects.OK, out)
	default:
		l.setTimer(h, t)
	}
}

// setTimer sets the timer that expires the transfer just after NotAfter.
func (l *Initiator) setTimer(h table.Handle, t *transfer) {
	l.timers.Set(&t.timer, t.notAfter.Add(1), kernel.Ref{Subject: h})
}

// isRevoked reports whether the target has revoked a transfer's grant, or may have revoked it, as far as the target has
// reported.
func (l *Initiator) isRevoked(t *transfer) bool {
	_, listed := slices.BinarySearch(l.revokedGrants, t.grant)
	return listed || t.since < l.revokedBefore
}

// cancelTransfer ends a transfer at once. Batches that the hardware already has may end by themselves for a limited
// time (Rules.Grace), because a batch is short, and stopping it would cost the communicator.
func (l *Initiator) cancelTransfer(now effects.Time, corr effects.Corr, out *Effects) {
	for h := l.queue.Front(); h != 0; h = l.transfers.Next(h) {
		t := l.transfers.Get(h)
		if t.corr != corr {
			continue
		}
		if t.inFlight > 0 && l.phase == phaseUp && l.graceDeadline == 0 {
			l.graceDeadline = now.Add(l.rules.Grace)
		}
		l.completeTransfer(now, h, effects.Cancelled, out)
		return
	}
}

// completeTransfer completes a transfer towards the machine, once. The transfer is settled unless hardware has a batch
// of it; a settled transfer's row is removed.
func (l *Initiator) completeTransfer(now effects.Time, h table.Handle, code effects.Code, out *Effects) {
	t := l.transfers.Get(h)
	if t == nil || t.reported {
		return
	}
	t.reported, t.code = true, code
	l.timers.Stop(&t.timer)
	l.transfers.Unlink(&l.queue, h)
	done := Post{Kind: PostTransferDone, Corr: t.corr, Code: code, Settled: t.inFlight == 0, At: now}
	out.Posts = append(out.Posts, done)
	if t.inFlight == 0 {
		l.transfers.Remove(h)
	}
}

// completeTransfers completes all transfers towards the machine with the code.
func (l *Initiator) completeTransfers(now effects.Time, code effects.Code, out *Effects) {
	for h := l.queue.Front(); h != 0; h = l.queue.Front() {
		l.completeTransfer(now, h, code, out)
	}
	l.blamedTransfer = 0
}

// finishBatch records that the hardware has finished with a batch of a transfer; moved says that all of the batch was
// moved.
func (l *Initiator) finishBatch(now effects.Time, h table.Handle, moved bool, out *Effects) {
	t := l.transfers.Get(h)
	t.inFlight--
	if moved {
		t.doneBatches++
	}
	switch {
	case t.inFlight > 0:
	case t.reported:
		code := t.code
		if t.isComplete() {
			code = effects.OK
		}
		out.Posts = append(out.Posts, Post{Kind: PostSettled, Corr: t.corr, Code: code})
		l.transfers.Remove(h)
	case t.isComplete():
		l.completeTransfer(now, h, effects.OK, out)
	}
}

// nextTransfer returns the transfer with the next batch to submit, or zero values if there is none.
func (l *Initiator) nextTransfer() (table.Handle, *transfer) {
	if l.phase != phaseUp || len(l.inFlight) >= l.rules.Window {
		return 0, nil
	}
	for h := l.queue.Front(); h != 0; h = l.transfers.Next(h) {
		if t := l.transfers.Get(h); t.sentBatches < t.batches {
			return h, t
		}
	}
	return 0, nil
}

// Next returns the batch to submit now, and reports false if there is none. The driver reads its clock, submits the
// batch, and passes Submitted before any other event.
func (l *Initiator) Next() (Batch, bool) {
	_, t := l.nextTransfer()
	if t == nil {
		return Batch{}, false
	}
	return Batch{Corr: t.corr, Index: t.sentBatches, NotAfter: t.notAfter}, true
}

// onSubmitted handles the outcome of the batch that Next returned.
func (l *Initiator) onSubmitted(now effects.Time, outcome Outcome, out *Effects) {
	h, t := l.nextTransfer()
	if t == nil {
		panic("BUG: a batch was submitted that no link wanted")
	}
	if outcome == TooLate {
		l.completeTransfer(now, h, effects.Expired, out)
		return
	}
	if len(l.inFlight) == 0 {
		l.progressDeadline = now.Add(l.rules.ProgressTimeout)
	}
	l.inFlight = append(l.inFlight, h)
	t.sentBatches++
	t.inFlight++
	if outcome == SubmitFailed {
		l.blameTransfer(h, effects.Faulted)
		l.fenceEpoch(out)
	}
}

// onBatchEnded handles the end of the oldest batch in flight. A batch that ends well while the epoch is being torn down
// counts as well.
func (l *Initiator) onBatchEnded(now effects.Time, ev *Event, out *Effects) {
	if ev.Epoch != l.epoch || len(l.inFlight) == 0 {
		return
	}
	h := l.inFlight[0]
	if !ev.Succeeded {
		if l.phase == phaseUp {
			l.blameTransfer(h, effects.Faulted)
			l.fenceEpoch(out)
		}
		return
	}
	l.inFlight = append(l.inFlight[:0], l.inFlight[1:]...)
	l.progressDeadline = 0
	if l.phase == phaseUp && len(l.inFlight) > 0 {
		l.progressDeadline = now.Add(l.rules.ProgressTimeout)
	}
	l.finishBatch(now, h, true, out)
	for _, h := range l.inFlight {
		if l.transfers.Get(h).reported {
			return
		}
	}
	l.graceDeadline = 0
}

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

	done   int // batches that have ended well, from the first on
	sent   int // batches submitted; those from done on are in flight, or belong to an epoch that is torn down
	flying int // batches that the hardware may still be accessing

	told bool         // TransferDone was posted
	code effects.Code // the code of that TransferDone
}

// whole reports whether all batches have ended well.
func (t *transfer) whole() bool { return t.done == t.batches }

// transfer accepts a transfer of the machine.
func (l *Initiator) transfer(now effects.Time, ev *Event, out *Out) {
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
		l.tell(now, h, l.ended, out)
	case l.withdrawn(t):
		l.tell(now, h, effects.Withdrawn, out)
	case t.whole():
		l.tell(now, h, effects.OK, out)
	default:
		l.setTimer(h, t)
	}
}

// setTimer sets the timer that expires the transfer just after NotAfter.
func (l *Initiator) setTimer(h table.Handle, t *transfer) {
	l.timers.Set(&t.timer, t.notAfter.Add(1), kernel.Ref{Subject: h})
}

// withdrawn reports whether the target has revoked a transfer's grant, or may have revoked it, as far as the target has
// reported.
func (l *Initiator) withdrawn(t *transfer) bool {
	_, listed := slices.BinarySearch(l.revoked, t.grant)
	return listed || t.since < l.before
}

// cancel ends a transfer at once. Batches that the hardware already has may end by themselves for a limited time
// (Rules.Grace), because a batch is short, and stopping it would cost the communicator.
func (l *Initiator) cancel(now effects.Time, corr effects.Corr, out *Out) {
	for h := l.queue.Front(); h != 0; h = l.transfers.Next(h) {
		t := l.transfers.Get(h)
		if t.corr != corr {
			continue
		}
		if t.flying > 0 && l.phase == up && l.graceBy == 0 {
			l.graceBy = now.Add(l.rules.Grace)
		}
		l.tell(now, h, effects.Cancelled, out)
		return
	}
}

// tell completes a transfer towards the machine, once. The transfer is settled unless hardware has a batch of it; a
// settled transfer's row is removed.
func (l *Initiator) tell(now effects.Time, h table.Handle, code effects.Code, out *Out) {
	t := l.transfers.Get(h)
	if t == nil || t.told {
		return
	}
	t.told, t.code = true, code
	l.timers.Stop(&t.timer)
	l.transfers.Unlink(&l.queue, h)
	done := Post{Kind: PostTransferDone, Corr: t.corr, Code: code, Settled: t.flying == 0, At: now}
	out.Posts = append(out.Posts, done)
	if t.flying == 0 {
		l.transfers.Remove(h)
	}
}

// tellAll completes all transfers towards the machine with the code.
func (l *Initiator) tellAll(now effects.Time, code effects.Code, out *Out) {
	for h := l.queue.Front(); h != 0; h = l.queue.Front() {
		l.tell(now, h, code, out)
	}
	l.blamed = 0
}

// land records that the hardware has finished with a batch of a transfer; well says that all of the batch was moved.
func (l *Initiator) land(now effects.Time, h table.Handle, well bool, out *Out) {
	t := l.transfers.Get(h)
	t.flying--
	if well {
		t.done++
	}
	switch {
	case t.flying > 0:
	case t.told:
		code := t.code
		if t.whole() {
			code = effects.OK
		}
		out.Posts = append(out.Posts, Post{Kind: PostSettled, Corr: t.corr, Code: code})
		l.transfers.Remove(h)
	case t.whole():
		l.tell(now, h, effects.OK, out)
	}
}

// next returns the transfer with the next batch to submit, or zero values if there is none.
func (l *Initiator) next() (table.Handle, *transfer) {
	if l.phase != up || len(l.flight) >= l.rules.Window {
		return 0, nil
	}
	for h := l.queue.Front(); h != 0; h = l.transfers.Next(h) {
		if t := l.transfers.Get(h); t.sent < t.batches {
			return h, t
		}
	}
	return 0, nil
}

// Next returns the batch to submit now, and reports false if there is none. The driver reads its clock, submits the
// batch, and passes Submitted before any other event.
func (l *Initiator) Next() (Batch, bool) {
	_, t := l.next()
	if t == nil {
		return Batch{}, false
	}
	return Batch{Corr: t.corr, Index: t.sent, NotAfter: t.notAfter}, true
}

// submitted handles the outcome of the batch that Next returned.
func (l *Initiator) submitted(now effects.Time, how Outcome, out *Out) {
	h, t := l.next()
	if t == nil {
		panic("BUG: a batch was submitted that no link wanted")
	}
	if how == TooLate {
		l.tell(now, h, effects.Expired, out)
		return
	}
	if len(l.flight) == 0 {
		l.progressBy = now.Add(l.rules.Patience)
	}
	l.flight = append(l.flight, h)
	t.sent++
	t.flying++
	if how == Broken {
		l.accuse(h, effects.Faulted)
		l.fence(out)
	}
}

// batchEnded handles the end of the oldest batch in flight. A batch that ends well while the epoch is being torn down
// counts as well.
func (l *Initiator) batchEnded(now effects.Time, ev *Event, out *Out) {
	if ev.Epoch != l.epoch || len(l.flight) == 0 {
		return
	}
	h := l.flight[0]
	if !ev.Well {
		if l.phase == up {
			l.accuse(h, effects.Faulted)
			l.fence(out)
		}
		return
	}
	l.flight = append(l.flight[:0], l.flight[1:]...)
	l.progressBy = 0
	if l.phase == up && len(l.flight) > 0 {
		l.progressBy = now.Add(l.rules.Patience)
	}
	l.land(now, h, true, out)
	for _, h := range l.flight {
		if l.transfers.Get(h).told {
			return
		}
	}
	l.graceBy = 0
}

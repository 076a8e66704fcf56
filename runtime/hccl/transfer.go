package hccl

import "github.com/kvferry/kvferry/effects"

// A transfer is a push or a read of the machine's, cut into batches. The batches of a link are submitted in order and end in order. A
// batch whose communicator was condemned is submitted once more on the next one, as long as the machine was told nothing: puts and gets
// may be repeated.
type transfer struct {
	corr     effects.Corr
	grant    effects.GrantID
	read     bool
	since    effects.Time // the grant was given no earlier
	notAfter effects.Time
	batches  [][]piece

	done   int // batches that have ended well, from the first on
	sent   int // batches that were submitted; those from done on are in flight, or belong to a life that is being buried
	flying int // batches that the hardware may still be at

	told bool         // TransferDone was posted
	code effects.Code // with this
}

func (t *transfer) whole() bool { return t.done == len(t.batches) }

// tell completes a transfer towards the machine, once. It is settled unless hardware has a batch of it.
func (l *link) tell(t *transfer, code effects.Code, now effects.Time) {
	if t.told {
		return
	}
	t.told, t.code = true, code
	for i, other := range l.queue {
		if other == t {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			break
		}
	}
	l.hands.post(&effects.TransferDone{Corr: t.corr, Code: code, Settled: t.flying == 0, At: now})
}

func (l *link) tellAll(code effects.Code, now effects.Time) {
	for len(l.queue) > 0 {
		l.tell(l.queue[0], code, now)
	}
	l.blamed = nil
}

// land notes that hardware is done with a batch of t; well says that it moved all of it.
func (l *link) land(t *transfer, well bool, now effects.Time) {
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
		l.hands.post(&effects.Settled{Corr: t.corr, Code: code})
	case t.whole():
		l.tell(t, effects.OK, now)
	}
}

// withdrawn reports whether the peer has taken a transfer's grant back, or may have, as far as it has told.
func (l *link) withdrawn(t *transfer) bool {
	_, listed := l.revoked[t.grant]
	return listed || t.since < l.before
}

// transfer takes one of the machine's.
func (l *link) transfer(t *transfer, now effects.Time) {
	l.queue = append(l.queue, t)
	switch {
	case l.final:
		l.tell(t, l.ended, now)
	case l.withdrawn(t):
		l.tell(t, effects.Withdrawn, now)
	case t.whole():
		l.tell(t, effects.OK, now)
	}
}

// cancel ends a transfer at once, and lets what the hardware has of it end by itself for a while: a batch is short, and
// to stop it would cost the communicator.
func (l *link) cancel(corr effects.Corr, now effects.Time) {
	for _, t := range l.queue {
		if t.corr == corr {
			l.tell(t, effects.Cancelled, now)
			if t.flying > 0 && l.phase == up && l.graceBy == 0 {
				l.graceBy = now.Add(l.rules.grace)
			}
			return
		}
	}
}

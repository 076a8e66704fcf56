package communicator

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// Three events end a link: the link is lost (loseLink: the channel or the target failed), the rank drops the link
// (dropLink: event Drop), or the plane closes (closeLink: event Close). Each completes the open transfers, posts its
// result to the rank's machine, and lets no further epoch follow (makeFinal).

// loseLink ends the link because the channel is gone, no epoch could be formed, or there will be no proof for an epoch.
func (l *Initiator) loseLink(now effects.Time, code effects.Code, out *Effects) {
	if l.final {
		return
	}
	l.completeTransfers(now, effects.PeerLost, out)
	if l.imported {
		out.Posts = append(out.Posts, Post{Kind: PostLinkLost})
	} else {
		out.Posts = append(out.Posts, Post{Kind: PostImported, Code: ImportCode(code)})
	}
	l.makeFinal(effects.PeerLost, out)
}

// dropLink ends the link because the rank dropped it, and posts PostDropped to the rank's machine. Batches that the
// hardware still has are reported as Settled later.
func (l *Initiator) dropLink(now effects.Time, out *Effects) {
	if l.dropped {
		return
	}
	l.dropped = true
	l.completeTransfers(now, effects.PeerLost, out)
	out.Posts = append(out.Posts, Post{Kind: PostDropped})
	l.makeFinal(effects.PeerLost, out)
}

// closeLink ends the link because the plane closes.
func (l *Initiator) closeLink(now effects.Time, out *Effects) {
	if !l.imported && !l.final {
		out.Posts = append(out.Posts, Post{Kind: PostImported, Code: effects.Closed})
	}
	l.completeTransfers(now, effects.Closed, out)
	l.makeFinal(effects.Closed, out)
	l.endCode = effects.Closed // makeFinal sets no code if the link was final already, and IsFinished needs Closed.
}

// makeFinal lets no epoch follow the current one. An epoch in use is fenced at once, and an offer that is not answered
// is given up. An epoch that is being formed or torn down is finished first.
func (l *Initiator) makeFinal(code effects.Code, out *Effects) {
	if l.final {
		return
	}
	l.final, l.endCode = true, code
	switch l.phase {
	case phaseUp:
		l.fenceEpoch(out)
	case phaseOffered:
		l.phase, l.answerDeadline = phaseOver, 0
	case phaseForming, phaseTearingDown, phaseOver: // These phases reach over by themselves.
	}
}

// onTick handles the passing of time: it acts on every deadline that has been reached.
func (l *Initiator) onTick(now effects.Time, out *Effects) {
	switch {
	case l.phase == phaseOffered && now >= l.answerDeadline:
		l.phase, l.answerDeadline = phaseOver, 0
		l.loseLink(now, effects.Unreachable, out)
	case l.phase == phaseUp && len(l.inFlight) > 0 && now >= l.progressDeadline:
		l.blameTransfer(l.inFlight[0], effects.Expired)
		l.fenceEpoch(out)
	case l.phase == phaseUp && l.graceDeadline != 0 && now >= l.graceDeadline:
		l.fenceEpoch(out)
	}
	for ref, ok := l.timers.Pop(now); ok; ref, ok = l.timers.Pop(now) {
		t := l.transfers.Get(ref.Subject)
		t.timer = 0
		// A transfer that submitted all its batches in time goes on without a timer. fenceEpoch sets the timer again if
		// a batch of the transfer is still in flight then.
		if l.phase != phaseUp || t.sentBatches < t.batches {
			l.completeTransfer(now, ref.Subject, effects.Expired, out)
		}
	}
}

// Deadline returns the instant at which the next Tick is wanted, and reports false if there is none.
func (l *Initiator) Deadline() (effects.Time, bool) {
	at, ok := l.timers.NextDeadline()
	sooner := func(t effects.Time) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	switch {
	case l.phase == phaseOffered:
		sooner(l.answerDeadline)
	case l.phase == phaseUp && len(l.inFlight) > 0:
		sooner(l.progressDeadline)
		// Invariant: graceDeadline is 0 when nothing is in flight.
		if l.graceDeadline != 0 {
			sooner(l.graceDeadline)
		}
	}
	return at, ok
}

// ImportCode returns the code with which an import ends that failed with the given code. A code that an import may not
// end with becomes Refused. Only a broken target sends such a code. If the channel ends before the import has, the code
// is PeerLost, which becomes Refused, too.
func ImportCode(code effects.Code) effects.Code {
	allowed := [...]effects.Code{
		effects.Unreachable, effects.Stale, effects.Malformed, effects.TooMany, effects.Faulted, effects.Unsupported,
		effects.Closed,
	}
	if slices.Contains(allowed[:], code) {
		return code
	}
	return effects.Refused
}

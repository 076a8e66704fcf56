package communicator

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// offerEpoch offers the next epoch.
func (l *Initiator) offerEpoch(now effects.Time, out *Effects) {
	l.epoch++
	l.phase, l.answerDeadline = phaseOffered, now.Add(l.rules.AnswerTimeout)
	out.Messages = append(out.Messages, Message{MessageOffer, l.epoch})
}

// handleAccepted handles the target's answer to the offer of an epoch: whether the target makes its end, and which
// grants of this initiator it has revoked so far. After its answer the target revokes no grant without fencing this
// epoch. Therefore each batch that is submitted in this epoch is under a grant that is in force, or is proven gone
// before the owner uses the pages again (M4).
func (l *Initiator) handleAccepted(now effects.Time, ev *Event, out *Effects) {
	if l.phase != phaseOffered || ev.Epoch != l.epoch {
		return
	}
	if ev.Code != effects.OK {
		l.loseLink(now, ev.Code, out)
		return
	}
	l.failBlamed(now, out)
	l.fencedByPeer, l.fencedEarly = false, false
	l.revokedGrants, l.revokedBefore = append(l.revokedGrants[:0], ev.Revoked...), 0
	slices.Sort(l.revokedGrants)
	if ev.MoreRevoked {
		l.revokedBefore = now
	}
	for h := l.queue.Front(); h != 0; {
		next := l.transfers.Next(h)
		if l.isRevoked(l.transfers.Get(h)) {
			l.completeTransfer(now, h, effects.Withdrawn, out)
		}
		h = next
	}
	l.phase, l.answerDeadline = phaseForming, 0
	out.FormEpoch = l.epoch
}

// failBlamed ends the transfer that broke the last epoch. If the target fenced that epoch, no transfer is blamed,
// because the first batch that noticed the end is not at fault.
func (l *Initiator) failBlamed(now effects.Time, out *Effects) {
	if l.blamedTransfer != 0 && !l.fencedByPeer {
		l.completeTransfer(now, l.blamedTransfer, l.blameCode, out)
	}
	l.blamedTransfer = 0
}

// onFormed handles the result of forming an epoch's communicator.
func (l *Initiator) onFormed(now effects.Time, ev *Event, out *Effects) {
	switch {
	case l.phase != phaseForming || ev.Epoch != l.epoch:
	case ev.Code == effects.OK:
		l.phase, l.tries = phaseUp, 0
		if !l.imported && !l.final {
			l.imported = true
			out.Posts = append(out.Posts, Post{Kind: PostImported, Code: effects.OK})
		}
		if l.final || l.fencedEarly {
			l.fenceEpoch(out)
		}
	case l.final:
		l.phase = phaseOver
	default:
		out.Messages = append(out.Messages, Message{MessageGone, l.epoch})
		if l.tries++; l.tries < l.rules.Tries {
			l.offerEpoch(now, out)
			return
		}
		l.phase = phaseOver
		l.loseLink(now, ev.Code, out)
	}
}

// blameTransfer records the transfer that broke the epoch. Only the first accusation counts.
func (l *Initiator) blameTransfer(h table.Handle, code effects.Code) {
	if l.blamedTransfer == 0 {
		l.blamedTransfer, l.blameCode = h, code
	}
}

// fenceEpoch ends the use of the epoch: nothing is submitted on it any more. A transfer that submitted all its batches
// may have to submit again in the next epoch, so from here on its time may run out.
func (l *Initiator) fenceEpoch(out *Effects) {
	l.phase, l.progressDeadline, l.graceDeadline = phaseTearingDown, 0, 0
	for _, h := range l.inFlight {
		if t := l.transfers.Get(h); !t.reported && t.timer == 0 {
			l.setTimer(h, t)
		}
	}
	out.Messages = append(out.Messages, Message{MessageFenced, l.epoch})
	out.TearDown = TearDown{Epoch: l.epoch, InFlight: len(l.inFlight), ByPeer: l.fencedByPeer, Last: l.final}
}

// handleTargetFenced handles the report that the target has fenced an epoch and takes its own end of it away.
func (l *Initiator) handleTargetFenced(epoch uint64, out *Effects) {
	switch {
	case epoch == l.epoch && l.phase == phaseUp:
		l.fencedByPeer = true
		l.fenceEpoch(out)
	case epoch == l.epoch && l.phase == phaseForming:
		l.fencedEarly = true
	case l.isTearingDown(epoch), epoch+1 == l.epoch && l.phase == phaseOffered:
		l.fencedByPeer = true
	}
}

// isTearingDown reports whether the epoch is being torn down. The result is false after NoProof, because no proof is
// accepted any more.
func (l *Initiator) isTearingDown(epoch uint64) bool {
	return epoch == l.epoch && l.phase == phaseTearingDown && !l.unproven
}

// onNoProof handles the report that there will be no proof for a fenced epoch. What the epoch touched stays unsettled,
// and the link becomes unusable.
func (l *Initiator) onNoProof(now effects.Time, epoch uint64, out *Effects) {
	if !l.isTearingDown(epoch) {
		return
	}
	l.failBlamed(now, out)
	l.unproven = true
	l.loseLink(now, effects.PeerLost, out)
}

// onTornDown handles the proof that nothing of a fenced epoch touches any memory any more. Only now is what the epoch
// touched settled, and only now may another epoch follow (M4).
func (l *Initiator) onTornDown(now effects.Time, epoch uint64, out *Effects) {
	if !l.isTearingDown(epoch) {
		return
	}
	for _, h := range l.inFlight {
		t := l.transfers.Get(h)
		t.sentBatches = t.doneBatches
		l.finishBatch(now, h, false, out)
	}
	l.inFlight = l.inFlight[:0]
	out.Messages = append(out.Messages, Message{MessageGone, epoch})
	if l.final {
		l.phase = phaseOver
		return
	}
	l.offerEpoch(now, out)
}

package communicator

import "github.com/kvferry/kvferry/fsm/table"

// handlePeerMessage handles a message of the peer: the peer uses an epoch no more, and its end is gone or will be.
func (t *Target) handlePeerMessage(ev *TargetEvent, out *TargetEffects) {
	_, e := t.findEpoch(ev.Session, ev.Epoch)
	if e == nil {
		return
	}
	s := t.sessions.Get(e.session)
	t.removeEnd(s, e, out)
	if ev.Kind == InitiatorGone {
		t.releaseEpoch(s, e, out)
	}
}

// onEndFinished handles the report that the target's own end is not worked on any more: the end is gone, or could not
// be taken away.
func (t *Target) onEndFinished(ev *TargetEvent, out *TargetEffects) {
	h, e := t.findEpoch(ev.Session, ev.Epoch)
	if e == nil {
		panic("BUG: EndFinished names an epoch that the target does not have")
	}
	if ev.Failed && !e.leaving {
		e.leaving = true
		out.SendFenced = append(out.SendFenced, t.epochRef(t.sessions.Get(e.session), e))
	}
	e.endGone, e.endFinished = ev.Gone, true
	t.reviewEpoch(h, e, out)
}

// onMarginPassed records that what the peer's hardware was doing has ended, provided that the peer's report is true.
func (t *Target) onMarginPassed(ev *TargetEvent, out *TargetEffects) {
	if h, e := t.findEpoch(ev.Session, ev.Epoch); e != nil {
		e.peerReleased = true
		t.reviewEpoch(h, e, out)
	}
}

// epochRef returns the epoch's number together with its session.
func (t *Target) epochRef(s *session, e *epoch) EpochRef { return EpochRef{s.id, e.number} }

// fenceEpoch has the target's own end taken away. The peer is notified first, so that it knows why its batches fail.
func (t *Target) fenceEpoch(s *session, e *epoch, out *TargetEffects) {
	if !e.leaving {
		out.SendFenced = append(out.SendFenced, t.epochRef(s, e))
		t.removeEnd(s, e, out)
	}
}

// removeEnd has the target's own end taken away because the peer does not use it any more.
func (t *Target) removeEnd(s *session, e *epoch, out *TargetEffects) {
	if !e.leaving {
		e.leaving = true
		out.RemoveEnds = append(out.RemoveEnds, t.epochRef(s, e))
	}
}

// releaseEpoch records that the peer's end is gone, as the peer reports, or that the peer itself is gone. What its
// hardware was doing ends within the margin.
func (t *Target) releaseEpoch(s *session, e *epoch, out *TargetEffects) {
	if !e.peerReleasing {
		e.peerReleasing = true
		out.StartMargins = append(out.StartMargins, t.epochRef(s, e))
	}
}

// isProvenOver reports whether there is proof that nothing reaches the pool by an epoch any more.
func (s *session) isProvenOver(e *epoch) bool {
	if s.memoryMapped {
		return e.peerReleased
	}
	return e.endGone || e.endFinished && e.peerReleased
}

// reviewEpoch marks an epoch over once there is proof, which completes the revocations that waited for this epoch
// alone. It removes the epoch when the target's own end is not worked on any more either.
func (t *Target) reviewEpoch(h table.Handle, e *epoch, out *TargetEffects) {
	at := e.session
	s := t.sessions.Get(at)
	if !e.over && s.isProvenOver(e) {
		e.over = true
		t.creditRevocations(s, e, out)
	}
	if e.over && e.endFinished {
		out.OverEpochs = append(out.OverEpochs, t.epochRef(s, e))
		t.epochs.Unlink(&s.epochs, h)
		t.epochs.Remove(h)
		t.removeIfUnused(at, s, out)
	}
}

// revokeGrant revokes a grant of a peer: each of the peer's epochs ends. The peer may offer another epoch at once, and
// the accept then names the grants that were revoked.
func (t *Target) revokeGrant(ev *TargetEvent, out *TargetEffects) {
	h, r := t.revocations.Add()
	if r == nil {
		panic("BUG: more revocations than there are grants")
	}
	*r = revocation{id: ev.Revocation, peer: ev.Peer, epochsBegun: t.epochsBegun}
	for slot := range t.sessions.Slots() {
		s := t.sessions.Get(t.sessions.At(slot))
		if s == nil || s.peer != ev.Peer {
			continue
		}
		for at := s.epochs.Front(); at != 0; at = t.epochs.Next(at) {
			if e := t.epochs.Get(at); !e.over {
				r.pendingEpochs++
				out.FencedToRevoke = append(out.FencedToRevoke, t.epochRef(s, e))
				t.fenceEpoch(s, e, out)
			}
		}
	}
	t.completeRevocation(h, r, out)
}

// creditRevocations counts an epoch that is over for the revocations that wait for it.
func (t *Target) creditRevocations(s *session, e *epoch, out *TargetEffects) {
	for slot := range t.revocations.Slots() {
		h := t.revocations.At(slot)
		if r := t.revocations.Get(h); r != nil && r.peer == s.peer && e.ordinal <= r.epochsBegun {
			r.pendingEpochs--
			t.completeRevocation(h, r, out)
		}
	}
}

// completeRevocation completes a revocation that waits for no epoch any more.
func (t *Target) completeRevocation(h table.Handle, r *revocation, out *TargetEffects) {
	if r.pendingEpochs == 0 {
		out.DoneRevocations = append(out.DoneRevocations, r.id)
		t.revocations.Remove(h)
	}
}

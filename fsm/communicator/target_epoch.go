package communicator

import "github.com/kvferry/kvferry/fsm/table"

// says handles a message of the peer: the peer uses an epoch no more, and its end is gone or will be.
func (t *Target) says(ev *TargetEvent, out *TargetOut) {
	_, e := t.epoch(ev.Session, ev.Epoch)
	if e == nil {
		return
	}
	s := t.sessions.Get(e.session)
	t.leave(s, e, out)
	if ev.Kind == SaysGone {
		t.release(s, e, out)
	}
}

// endLed handles the report that the target's own end is not worked on any more: the end is gone, or could not be taken
// away.
func (t *Target) endLed(ev *TargetEvent, out *TargetOut) {
	h, e := t.epoch(ev.Session, ev.Epoch)
	if e == nil {
		panic("BUG: an end was led that no epoch has")
	}
	if ev.Failed && !e.leaving {
		e.leaving = true
		out.Fences = append(out.Fences, t.name(t.sessions.Get(e.session), e))
	}
	e.here, e.led = ev.Gone, true
	t.review(h, e, out)
}

// marginOver records that what the peer's hardware was doing has ended, provided that the peer's report is true.
func (t *Target) marginOver(ev *TargetEvent, out *TargetOut) {
	if h, e := t.epoch(ev.Session, ev.Epoch); e != nil {
		e.released = true
		t.review(h, e, out)
	}
}

// name returns the epoch's number together with its session.
func (t *Target) name(s *session, e *epoch) EpochOf { return EpochOf{s.id, e.number} }

// fence has the target's own end taken away. The peer is notified first, so that it knows why its batches fail.
func (t *Target) fence(s *session, e *epoch, out *TargetOut) {
	if !e.leaving {
		out.Fences = append(out.Fences, t.name(s, e))
		t.leave(s, e, out)
	}
}

// leave has the target's own end taken away because the peer does not use it any more.
func (t *Target) leave(s *session, e *epoch, out *TargetOut) {
	if !e.leaving {
		e.leaving = true
		out.Leaves = append(out.Leaves, t.name(s, e))
	}
}

// release records that the peer's end is gone, as the peer reports, or that the peer itself is gone. What its hardware
// was doing ends within the margin.
func (t *Target) release(s *session, e *epoch, out *TargetOut) {
	if !e.releasing {
		e.releasing = true
		out.Margins = append(out.Margins, t.name(s, e))
	}
}

// proven reports whether there is proof that nothing reaches the pool by an epoch any more.
func (s *session) proven(e *epoch) bool {
	if s.mapped {
		return e.released
	}
	return e.here || e.led && e.released
}

// review marks an epoch over once there is proof, which completes the revocations that waited for this epoch alone. It
// removes the epoch when the target's own end is not worked on any more either.
func (t *Target) review(h table.Handle, e *epoch, out *TargetOut) {
	at := e.session
	s := t.sessions.Get(at)
	if !e.over && s.proven(e) {
		e.over = true
		t.proven(s, e, out)
	}
	if e.over && e.led {
		out.Over = append(out.Over, t.name(s, e))
		t.epochs.Unlink(&s.epochs, h)
		t.epochs.Remove(h)
		t.rest(at, s, out)
	}
}

// expels revokes a grant of a peer: each of the peer's epochs ends. The peer may offer another epoch at once, and the
// accept then names the grants that were revoked.
func (t *Target) expels(ev *TargetEvent, out *TargetOut) {
	h, r := t.revokes.Add()
	if r == nil {
		panic("BUG: more revocations than there are grants")
	}
	*r = revoke{id: ev.Revoke, peer: ev.Peer, births: t.births}
	for slot := range t.sessions.Slots() {
		s := t.sessions.Get(t.sessions.At(slot))
		if s == nil || s.peer != ev.Peer {
			continue
		}
		for at := s.epochs.Front(); at != 0; at = t.epochs.Next(at) {
			if e := t.epochs.Get(at); !e.over {
				r.left++
				out.Expelled = append(out.Expelled, t.name(s, e))
				t.fence(s, e, out)
			}
		}
	}
	t.revoked(h, r, out)
}

// proven counts an epoch that is over for the revocations that wait for it.
func (t *Target) proven(s *session, e *epoch, out *TargetOut) {
	for slot := range t.revokes.Slots() {
		h := t.revokes.At(slot)
		if r := t.revokes.Get(h); r != nil && r.peer == s.peer && e.birth <= r.births {
			r.left--
			t.revoked(h, r, out)
		}
	}
}

// revoked completes a revocation that waits for no epoch any more.
func (t *Target) revoked(h table.Handle, r *revoke, out *TargetOut) {
	if r.left == 0 {
		out.Revoked = append(out.Revoked, r.id)
		t.revokes.Remove(h)
	}
}

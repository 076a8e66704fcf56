package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// admitLink admits a link, or decides why it is refused.
func (t *Target) admitLink(ev *TargetEvent, out *TargetEffects) {
	if out.Admission = t.decideAdmission(ev, out); out.Admission != Admitted {
		return
	}
	h, s := t.sessions.Add()
	t.linksAdmitted++
	*s = session{id: ev.Session, peer: ev.Peer, address: ev.From, memoryMapped: ev.MemoryMapped, ordinal: t.linksAdmitted}
	t.byID.Add(table.Hash(t.seed, ev.Session[:]), h)
}

// decideAdmission decides whether there is room for one more link: in the table, for its peer, and for its address. A
// link counts until nothing of it may reach the pool any more.
func (t *Target) decideAdmission(ev *TargetEvent, out *TargetEffects) Admission {
	if t.closed {
		return PlaneClosed
	}
	if _, used := t.findSession(ev.Session); used != nil {
		return SessionUsed
	}
	samePeer, sameAddress, limit := 0, 0, t.limits.Sessions
	oldest, oldestOrdinal := table.Handle(0), uint64(0)
	for slot := range t.sessions.Slots() {
		h := t.sessions.At(slot)
		s := t.sessions.Get(h)
		if s == nil {
			continue
		}
		if s.address == ev.From {
			sameAddress++
		}
		if s.peer != ev.Peer {
			continue
		}
		if samePeer++; !s.lost && (oldest == 0 || s.ordinal < oldestOrdinal) {
			oldest, oldestOrdinal = h, s.ordinal
		}
	}
	switch {
	case samePeer >= t.limits.PerPeer:
		out.LinkCount = samePeer
		if oldest == 0 {
			return PeerFull
		}
		t.loseLink(oldest, t.sessions.Get(oldest), out)
		return PeerRenewed
	case t.sessions.Full():
		out.LinkCount = t.sessions.Len()
		return TableFull
	case sameAddress >= limit-limit/t.limits.Reserved:
		out.LinkCount = sameAddress
		return AddressFull
	}
	return Admitted
}

// onWelcomeFailed removes a link after the notification that it was admitted could not be sent.
func (t *Target) onWelcomeFailed(ev *TargetEvent, out *TargetEffects) {
	if h, s := t.findSession(ev.Session); s != nil {
		s.lost, s.connEnded = true, true
		t.removeIfUnused(h, s, out)
	}
}

// onChannelEnded handles the end of a link's connection. If that end proves that the peer closed it or died, it counts
// as the peer's report that its ends are gone.
func (t *Target) onChannelEnded(ev *TargetEvent, out *TargetEffects) {
	h, s := t.findSession(ev.Session)
	if s == nil {
		return
	}
	s.connEnded = true
	if ev.ProvesGone {
		t.releaseAll(s, out)
	}
	t.removeIfUnused(h, s, out)
}

// loseLink ends the link: messages on its connection are not believed any more. How the connection ends is still
// believed.
func (t *Target) loseLink(h table.Handle, s *session, out *TargetEffects) {
	if s.lost {
		return
	}
	s.lost = true
	if !t.closed {
		out.LostLinks = append(out.LostLinks, s.id)
	}
	t.fenceAll(s, out)
	t.removeIfUnused(h, s, out)
}

// closeLinks ends all links. Epochs that may still reach the pool are awaited.
func (t *Target) closeLinks(out *TargetEffects) {
	t.closed = true
	for slot := range t.sessions.Slots() {
		h := t.sessions.At(slot)
		if s := t.sessions.Get(h); s != nil {
			t.fenceAll(s, out)
			t.removeIfUnused(h, s, out)
		}
	}
}

// removeIfUnused removes a link of which nothing is left, and hangs up a connection that is of no use any more.
func (t *Target) removeIfUnused(h table.Handle, s *session, out *TargetEffects) {
	switch {
	case s.epochs.Len() > 0 || !s.lost && !t.closed:
	case s.connEnded:
		out.EndedSessions = append(out.EndedSessions, s.id)
		t.byID.Remove(table.Hash(t.seed, s.id[:]), h)
		t.sessions.Remove(h)
	case !s.closeRequested:
		s.closeRequested = true
		out.CloseConns = append(out.CloseConns, s.id)
	}
}

// fenceAll fences all epochs of a session.
func (t *Target) fenceAll(s *session, out *TargetEffects) {
	for h := s.epochs.Front(); h != 0; h = t.epochs.Next(h) {
		t.fenceEpoch(s, t.epochs.Get(h), out)
	}
}

// releaseAll releases all epochs of a session.
func (t *Target) releaseAll(s *session, out *TargetEffects) {
	for h := s.epochs.Front(); h != 0; h = t.epochs.Next(h) {
		t.releaseEpoch(s, t.epochs.Get(h), out)
	}
}

// handleOffer begins an epoch. Each revocation is either in the list of revoked grants in the accept, or finds the
// epoch and fences it, because the driver makes that list after the epoch has begun (M4).
func (t *Target) handleOffer(ev *TargetEvent, out *TargetEffects) {
	h, s := t.findSession(ev.Session)
	if s == nil {
		out.Code = effects.Closed
		return
	}
	if ev.Epoch <= s.newestEpoch {
		out.NewerEpoch = s.newestEpoch
		return
	}
	s.newestEpoch = ev.Epoch
	// The peer offers the next epoch only when it has finished with all earlier ones.
	for at := s.epochs.Front(); at != 0; at = t.epochs.Next(at) {
		e := t.epochs.Get(at)
		t.removeEnd(s, e, out)
		t.releaseEpoch(s, e, out)
	}
	switch {
	case t.closed || s.lost:
		out.Code = effects.Closed
	case s.epochs.Len() >= t.limits.Epochs:
		out.Code = effects.TooMany
	default:
		at, e := t.epochs.Add()
		t.epochsBegun++
		*e = epoch{session: h, number: ev.Epoch, ordinal: t.epochsBegun}
		t.epochs.PushBack(&s.epochs, at)
		out.Code, out.MakeEnd = effects.OK, true
	}
}

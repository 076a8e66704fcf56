package communicator

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// arrives admits a link, or decides why it is refused.
func (t *Target) arrives(ev *TargetEvent, out *TargetOut) {
	if out.Entry = t.entry(ev, out); out.Entry != Open {
		return
	}
	h, s := t.sessions.Add()
	t.arrivals++
	*s = session{id: ev.Session, peer: ev.Peer, from: ev.From, mapped: ev.Mapped, arrival: t.arrivals}
	t.byID.Add(table.Hash(t.seed, ev.Session[:]), h)
}

// entry decides whether there is room for one more link: in the table, for its peer, and for its address. A link counts
// until nothing of it may reach the pool any more.
func (t *Target) entry(ev *TargetEvent, out *TargetOut) Entry {
	if t.closed {
		return PlaneClosed
	}
	if _, used := t.session(ev.Session); used != nil {
		return SessionUsed
	}
	own, near, most := 0, 0, t.limits.Sessions
	oldest, first := table.Handle(0), uint64(0)
	for slot := range t.sessions.Slots() {
		h := t.sessions.At(slot)
		s := t.sessions.Get(h)
		if s == nil {
			continue
		}
		if s.from == ev.From {
			near++
		}
		if s.peer != ev.Peer {
			continue
		}
		if own++; !s.lost && (oldest == 0 || s.arrival < first) {
			oldest, first = h, s.arrival
		}
	}
	switch {
	case own >= t.limits.OfPeer:
		out.Links = own
		if oldest == 0 {
			return PeerFull
		}
		t.lose(oldest, t.sessions.Get(oldest), out)
		return PeerRenewed
	case t.sessions.Full():
		out.Links = t.sessions.Len()
		return AllFull
	case near >= most-most/t.limits.Reserved:
		out.Links = near
		return AddressFull
	}
	return Open
}

// turnsAway removes a link after the notification that it was admitted could not be sent.
func (t *Target) turnsAway(ev *TargetEvent, out *TargetOut) {
	if h, s := t.session(ev.Session); s != nil {
		s.lost, s.ended = true, true
		t.rest(h, s, out)
	}
}

// channelEnds handles the end of a link's connection. If that end proves that the peer closed it or died, it counts as
// the peer's report that its ends are gone.
func (t *Target) channelEnds(ev *TargetEvent, out *TargetOut) {
	h, s := t.session(ev.Session)
	if s == nil {
		return
	}
	s.ended = true
	if ev.Proves {
		t.releaseAll(s, out)
	}
	t.rest(h, s, out)
}

// lose ends the link: messages on its connection are not believed any more. How the connection ends is still believed.
func (t *Target) lose(h table.Handle, s *session, out *TargetOut) {
	if s.lost {
		return
	}
	s.lost = true
	if !t.closed {
		out.Lost = append(out.Lost, s.id)
	}
	t.fenceAll(s, out)
	t.rest(h, s, out)
}

// closes ends all links. Epochs that may still reach the pool are awaited.
func (t *Target) closes(out *TargetOut) {
	t.closed = true
	for slot := range t.sessions.Slots() {
		h := t.sessions.At(slot)
		if s := t.sessions.Get(h); s != nil {
			t.fenceAll(s, out)
			t.rest(h, s, out)
		}
	}
}

// rest removes a link of which nothing is left, and hangs up a connection that is of no use any more.
func (t *Target) rest(h table.Handle, s *session, out *TargetOut) {
	switch {
	case s.epochs.Len() > 0 || !s.lost && !t.closed:
	case s.ended:
		out.Forgotten = append(out.Forgotten, s.id)
		t.byID.Remove(table.Hash(t.seed, s.id[:]), h)
		t.sessions.Remove(h)
	case !s.hungUp:
		s.hungUp = true
		out.HangUps = append(out.HangUps, s.id)
	}
}

// fenceAll fences all epochs of a session.
func (t *Target) fenceAll(s *session, out *TargetOut) {
	for h := s.epochs.Front(); h != 0; h = t.epochs.Next(h) {
		t.fence(s, t.epochs.Get(h), out)
	}
}

// releaseAll releases all epochs of a session.
func (t *Target) releaseAll(s *session, out *TargetOut) {
	for h := s.epochs.Front(); h != 0; h = t.epochs.Next(h) {
		t.release(s, t.epochs.Get(h), out)
	}
}

// offers begins an epoch. Each revocation is either in the list of revoked grants in the accept, or finds the epoch and
// fences it, because the driver makes that list after the epoch has begun (M4).
func (t *Target) offers(ev *TargetEvent, out *TargetOut) {
	h, s := t.session(ev.Session)
	if s == nil {
		out.Code = effects.Closed
		return
	}
	if ev.Epoch <= s.newest {
		out.Stale = s.newest
		return
	}
	s.newest = ev.Epoch
	// The peer offers the next epoch only when it has finished with all earlier ones.
	for at := s.epochs.Front(); at != 0; at = t.epochs.Next(at) {
		e := t.epochs.Get(at)
		t.leave(s, e, out)
		t.release(s, e, out)
	}
	switch {
	case t.closed || s.lost:
		out.Code = effects.Closed
	case s.epochs.Len() >= t.limits.Epochs:
		out.Code = effects.TooMany
	default:
		at, e := t.epochs.Add()
		t.births++
		*e = epoch{session: h, number: ev.Epoch, birth: t.births}
		t.epochs.PushBack(&s.epochs, at)
		out.Code, out.Begun = effects.OK, true
	}
}

package communicator

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// ask offers the next epoch.
func (l *Initiator) ask(now effects.Time, out *Out) {
	l.epoch++
	l.phase, l.askedBy = asking, now.Add(l.rules.Answer)
	out.Says = append(out.Says, Say{Offer, l.epoch})
}

// accepted handles the target's answer to the offer of an epoch: whether the target makes its end, and which grants of
// this initiator it has revoked so far. After its answer the target revokes no grant without fencing this epoch.
// Therefore each batch that is submitted in this epoch is under a grant that is in force, or is proven gone before the
// owner uses the pages again (M4).
func (l *Initiator) accepted(now effects.Time, ev *Event, out *Out) {
	if l.phase != asking || ev.Epoch != l.epoch {
		return
	}
	if ev.Code != effects.OK {
		l.lose(now, ev.Code, out)
		return
	}
	l.verdict(now, out)
	l.byPeer, l.early = false, false
	l.revoked, l.before = append(l.revoked[:0], ev.Revoked...), 0
	slices.Sort(l.revoked)
	if ev.More {
		l.before = now
	}
	for h := l.queue.Front(); h != 0; {
		next := l.transfers.Next(h)
		if l.withdrawn(l.transfers.Get(h)) {
			l.tell(now, h, effects.Withdrawn, out)
		}
		h = next
	}
	l.phase, l.askedBy = forming, 0
	out.Form = l.epoch
}

// verdict ends the transfer that broke the last epoch. If the target fenced that epoch, no transfer is blamed, because
// the first batch that noticed the end is not at fault.
func (l *Initiator) verdict(now effects.Time, out *Out) {
	if l.blamed != 0 && !l.byPeer {
		l.tell(now, l.blamed, l.blame, out)
	}
	l.blamed = 0
}

// formed handles the result of forming an epoch's communicator.
func (l *Initiator) formed(now effects.Time, ev *Event, out *Out) {
	switch {
	case l.phase != forming || ev.Epoch != l.epoch:
	case ev.Code == effects.OK:
		l.phase, l.tries = up, 0
		if !l.imported && !l.final {
			l.imported = true
			out.Posts = append(out.Posts, Post{Kind: PostImported, Code: effects.OK})
		}
		if l.final || l.early {
			l.fence(out)
		}
	case l.final:
		l.phase = over
	default:
		out.Says = append(out.Says, Say{Gone, l.epoch})
		if l.tries++; l.tries < l.rules.Tries {
			l.ask(now, out)
			return
		}
		l.phase = over
		l.lose(now, ev.Code, out)
	}
}

// accuse records the transfer that broke the epoch. Only the first accusation counts.
func (l *Initiator) accuse(h table.Handle, code effects.Code) {
	if l.blamed == 0 {
		l.blamed, l.blame = h, code
	}
}

// fence ends the use of the epoch: nothing is submitted on it any more. A transfer that submitted all its batches may
// have to submit again in the next epoch, so from here on its time may run out.
func (l *Initiator) fence(out *Out) {
	l.phase, l.progressBy, l.graceBy = tearing, 0, 0
	for _, h := range l.flight {
		if t := l.transfers.Get(h); !t.told && t.timer == 0 {
			l.setTimer(h, t)
		}
	}
	out.Says = append(out.Says, Say{Fenced, l.epoch})
	out.TearDown = TearDown{Epoch: l.epoch, Flying: len(l.flight), ByPeer: l.byPeer, Last: l.final}
}

// peerFenced handles the report that the target has fenced an epoch and takes its own end of it away.
func (l *Initiator) peerFenced(epoch uint64, out *Out) {
	switch {
	case epoch == l.epoch && l.phase == up:
		l.byPeer = true
		l.fence(out)
	case epoch == l.epoch && l.phase == forming:
		l.early = true
	case l.tears(epoch), epoch+1 == l.epoch && l.phase == asking:
		l.byPeer = true
	}
}

// tears reports whether the epoch is being torn down. The result is false after NoProof, because no proof is accepted
// any more.
func (l *Initiator) tears(epoch uint64) bool {
	return epoch == l.epoch && l.phase == tearing && !l.unproven
}

// noProof handles the report that there will be no proof for a fenced epoch. What the epoch touched stays unsettled,
// and the link becomes unusable.
func (l *Initiator) noProof(now effects.Time, epoch uint64, out *Out) {
	if !l.tears(epoch) {
		return
	}
	l.verdict(now, out)
	l.unproven = true
	l.lose(now, effects.PeerLost, out)
}

// tornDown handles the proof that nothing of a fenced epoch touches any memory any more. Only now is what the epoch
// touched settled, and only now may another epoch follow (M4).
func (l *Initiator) tornDown(now effects.Time, epoch uint64, out *Out) {
	if !l.tears(epoch) {
		return
	}
	for _, h := range l.flight {
		t := l.transfers.Get(h)
		t.sent = t.done
		l.land(now, h, false, out)
	}
	l.flight = l.flight[:0]
	out.Says = append(out.Says, Say{Gone, epoch})
	if l.final {
		l.phase = over
		return
	}
	l.ask(now, out)
}

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

// accepted is the target's answer to the offer of an epoch: whether it makes its end, and which grants of ours it has
// taken back so far. It takes none back after it without fencing this epoch, so whatever is submitted on it is under a
// grant that stands, or is proven gone before the owner uses the pages.
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

// verdict ends the transfer that broke the last epoch, unless it was the target that ended that: then whose batch
// noticed it first is no fault of its transfer.
func (l *Initiator) verdict(now effects.Time, out *Out) {
	if l.blamed != 0 && !l.byPeer {
		l.tell(now, l.blamed, l.blame, out)
	}
	l.blamed = 0
}

// formed says how the forming of an epoch ended.
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

// accuse names the transfer that broke the epoch; the first counts.
func (l *Initiator) accuse(h table.Handle, code effects.Code) {
	if l.blamed == 0 {
		l.blamed, l.blame = h, code
	}
}

// fence ends the use of the epoch: nothing is submitted on it any more. What was submitted whole waits for it to be
// submitted again, and so may run out of time from here on.
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

// peerFenced says that the target has fenced an epoch: its own end of it goes away.
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

// tears says that this is the epoch that is being torn down. Who said that there will be no proof is not asked again.
func (l *Initiator) tears(epoch uint64) bool {
	return epoch == l.epoch && l.phase == tearing && !l.unproven
}

// noProof says that there will be no proof for a fenced epoch. What it touched stays unsettled, and the link is of no
// use.
func (l *Initiator) noProof(now effects.Time, epoch uint64, out *Out) {
	if !l.tears(epoch) {
		return
	}
	l.verdict(now, out)
	l.unproven = true
	l.lose(now, effects.PeerLost, out)
}

// tornDown says that nothing of a fenced epoch touches any memory any more: only now is what it touched settled, and
// only now may another epoch come.
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

package communicator

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// lose gives the link up because the channel is gone or no epoch could be formed.
func (l *Initiator) lose(now effects.Time, code effects.Code, out *Out) {
	if l.final {
		return
	}
	l.tellAll(now, effects.PeerLost, out)
	if l.imported {
		out.Posts = append(out.Posts, Post{Kind: PostLinkLost})
	} else {
		out.Posts = append(out.Posts, Post{Kind: PostImported, Code: Importing(code)})
	}
	l.finish(effects.PeerLost, out)
}

// drop ends the link for the machine. Batches that the hardware still has are reported as Settled later.
func (l *Initiator) drop(now effects.Time, out *Out) {
	if l.dropped {
		return
	}
	l.dropped = true
	l.tellAll(now, effects.PeerLost, out)
	out.Posts = append(out.Posts, Post{Kind: PostDropped})
	l.finish(effects.PeerLost, out)
}

// close ends the link because the plane closes.
func (l *Initiator) close(now effects.Time, out *Out) {
	if !l.imported && !l.final {
		out.Posts = append(out.Posts, Post{Kind: PostImported, Code: effects.Closed})
	}
	l.tellAll(now, effects.Closed, out)
	l.finish(effects.Closed, out)
	l.ended = effects.Closed
}

// finish makes the current epoch the last one; what runs in it comes to its end first.
func (l *Initiator) finish(code effects.Code, out *Out) {
	if l.final {
		return
	}
	l.final, l.ended = true, code
	switch l.phase {
	case up:
		l.fence(out)
	case asking:
		l.phase, l.askedBy = over, 0
	case forming, tearing, over: // These phases reach over by themselves.
	}
}

// tick handles the passing of time: it acts on every deadline that has been reached.
func (l *Initiator) tick(now effects.Time, out *Out) {
	switch {
	case l.phase == asking && now >= l.askedBy:
		l.phase, l.askedBy = over, 0
		l.lose(now, effects.Unreachable, out)
	case l.phase == up && len(l.flight) > 0 && now >= l.progressBy:
		l.accuse(l.flight[0], effects.Expired)
		l.fence(out)
	case l.phase == up && l.graceBy != 0 && now >= l.graceBy:
		l.fence(out)
	}
	for ref, ok := l.timers.Pop(now); ok; ref, ok = l.timers.Pop(now) {
		t := l.transfers.Get(ref.Subject)
		t.timer = 0
		// A transfer that submitted all its batches in time goes on; fence sets its timer again.
		if l.phase != up || t.sent < t.batches {
			l.tell(now, ref.Subject, effects.Expired, out)
		}
	}
}

// Deadline returns the instant at which the next Tick is wanted, and reports false if there is none.
func (l *Initiator) Deadline() (effects.Time, bool) {
	at, ok := l.timers.Next()
	sooner := func(t effects.Time) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	switch {
	case l.phase == asking:
		sooner(l.askedBy)
	case l.phase == up && len(l.flight) > 0:
		sooner(l.progressBy)
		if l.graceBy != 0 {
			sooner(l.graceBy)
		}
	}
	return at, ok
}

// Importing returns the code with which an import ends that a target refused. A code that an import may not end with,
// which only a broken target sends, becomes Refused.
func Importing(code effects.Code) effects.Code {
	may := [...]effects.Code{
		effects.Unreachable, effects.Stale, effects.Malformed, effects.TooMany, effects.Faulted, effects.Unsupported,
		effects.Closed,
	}
	if slices.Contains(may[:], code) {
		return code
	}
	return effects.Refused
}

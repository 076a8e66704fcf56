package hccl

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// lose gives the link up: the channel is gone, or no life could be formed.
func (l *link) lose(code effects.Code, now effects.Time) {
	if l.final {
		return
	}
	l.tellAll(effects.PeerLost, now)
	if l.imported {
		l.hands.post(&effects.LinkLost{Link: l.id, Peer: l.peer})
	} else {
		l.hands.post(&effects.Imported{Corr: l.corr, Code: importing(code)})
	}
	l.finish(effects.PeerLost)
}

// drop ends the link for the machine. What hardware still has of it is told as Settled later.
func (l *link) drop(now effects.Time) {
	if l.dropped {
		return
	}
	l.dropped = true
	l.tellAll(effects.PeerLost, now)
	l.hands.post(&effects.Dropped{Link: l.id})
	l.finish(effects.PeerLost)
}

// close ends the link because the plane ends.
func (l *link) close(now effects.Time) {
	if !l.imported && !l.final {
		l.hands.post(&effects.Imported{Corr: l.corr, Code: effects.Closed})
	}
	l.tellAll(effects.Closed, now)
	l.finish(effects.Closed)
	l.ended = effects.Closed
}

// finish lets no life follow; what runs of this one comes to its end first.
func (l *link) finish(code effects.Code) {
	if l.final {
		return
	}
	l.final, l.ended = true, code
	switch l.phase {
	case up:
		l.condemn()
	case asking:
		l.phase = over
	case forming, burying, over: // They go on to over.
	}
}

// tick says what time it is.
func (l *link) tick(now effects.Time) {
	switch {
	case l.phase == asking && now >= l.askedBy:
		l.phase = over
		l.lose(effects.Unreachable, now)
	case l.phase == up && len(l.flight) > 0 && now >= l.progressBy:
		l.accuse(l.flight[0], effects.Expired)
		l.condemn()
	case l.phase == up && l.graceBy != 0 && now >= l.graceBy:
		l.condemn()
	}
	for i := 0; i < len(l.queue); {
		if t := l.queue[i]; now > t.notAfter && l.waits(t) {
			l.tell(t, effects.Expired, now) // Which takes it out of the queue.
		} else {
			i++
		}
	}
}

// waits reports whether something of t is still to be submitted.
func (l *link) waits(t *transfer) bool { return l.phase != up || t.sent < len(t.batches) }

// wake is the time at which tick is wanted next; 0: none.
func (l *link) wake() (at effects.Time) {
	sooner := func(t effects.Time) {
		if at == 0 || t < at {
			at = t
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
	for _, t := range l.queue {
		if l.waits(t) {
			sooner(t.notAfter.Add(1))
		}
	}
	return at
}

// gone reports whether nothing more will come of the link.
func (l *link) gone() bool {
	return (l.phase == over || l.hopeless) && (l.dropped || !l.imported || l.ended == effects.Closed)
}

// importing is how an import ends that a peer refused: a code that it may not end with, which only a broken peer gives, is Refused.
func importing(code effects.Code) effects.Code {
	may := []effects.Code{
		effects.Unreachable, effects.Stale, effects.Malformed, effects.TooMany, effects.Faulted, effects.Unsupported, effects.Closed,
	}
	if slices.Contains(may, code) {
		return code
	}
	return effects.Refused
}

package proxy

import (
	"slices"
	"sync"
	"time"
)

// turns hands out engines in turn, by their places in the configuration. One that failed rests. When it has rested it
// gets one request, and others once that is being answered. It may be used from any goroutine.
type turns struct {
	rest  time.Duration
	trial time.Duration // for which that request is waited for, at least

	mu      sync.Mutex
	next    int
	engines []turn
}

type turn struct {
	until  time.Time // when it has rested; zero: it answers
	failed time.Time // last
	fails  int       // since it answered a request whole

	asked, failures uint64 // since the start
}

// doublings bounds the rest of an engine that fails again and again: 16 times the first one.
const doublings = 4

func newTurns(count int, rest, trial time.Duration) *turns {
	return &turns{rest: rest, trial: trial, engines: make([]turn, count)}
}

// look is take for a question that is no turn: a client that asks it before each of its requests would otherwise have
// all of them at one engine.
func (t *turns) look(now time.Time, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next
	i := t.choose(now, true, tried)
	t.next = at
	return i
}

// take gives the engine whose turn it is, of those that were not tried. With anyway one that rests is better than none.
// -1 is none.
func (t *turns) take(now time.Time, anyway bool, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.choose(now, anyway, tried)
	if i < 0 {
		return i
	}
	e := &t.engines[i]
	e.asked++
	if !e.until.IsZero() && !now.Before(e.until) {
		e.until = now.Add(max(t.pause(i), t.trial)) // For others: this request is to find out.
	}
	return i
}

func (t *turns) choose(now time.Time, anyway bool, tried map[int]bool) int {
	resting := -1
	for range t.engines {
		i := t.next
		t.next = (t.next + 1) % len(t.engines)
		switch until := t.engines[i].until; {
		case tried[i]:
		case !now.Before(until):
			return i
		case anyway && (resting < 0 || until.Before(t.engines[resting].until)):
			resting = i
		}
	}
	return resting
}

func (t *turns) pause(i int) time.Duration {
	return t.rest << min(max(t.engines[i].fails-1, 0), doublings)
}

// failed has an engine rest, twice as long each time. Many requests may fail at once, by one cause: what was begun
// before the last failure does not count again. For an engine that hangs, and so has not failed anew, atLeast is how
// long it rests from now.
func (t *turns) failed(i int, begun, now time.Time, atLeast time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.engines[i]
	if !begun.Before(e.failed) {
		e.failures++
	}
	if t.rest == 0 {
		return
	}
	if !begun.Before(e.failed) {
		e.fails, e.failed = e.fails+1, now
		e.until = now.Add(t.pause(i))
	}
	if until := now.Add(atLeast); atLeast > 0 && e.until.Before(until) {
		e.until = until
	}
}

// left has another request find out what one was to, whose client left.
func (t *turns) left(i int, begun, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.engines[i]; !begun.Before(e.failed) && now.Before(e.until) {
		e.until = now
	}
}

// answered ends the rest of an engine that answers what was begun after it failed. An answer that is whole has its
// failures forgotten.
func (t *turns) answered(i int, begun time.Time, whole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.engines[i]
	if begun.Before(e.failed) {
		return
	}
	e.until = time.Time{}
	if whole {
		e.fails = 0
	}
}

// snapshot returns a copy of all engines' turns.
func (t *turns) snapshot() []turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.engines)
}

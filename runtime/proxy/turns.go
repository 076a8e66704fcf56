package proxy

import (
	"slices"
	"sync"
	"time"
)

// turns selects engines round-robin, by the index in the configuration. An engine that failed rests. After the rest the
// engine gets a trial request, and further requests once the trial is being answered. The methods may be called from
// any goroutine.
//
// Example: engine 1 of three refuses a connection. For Config.Rest, requests go to engines 0 and 2. Then a single
// request goes to engine 1. If this request fails, the engine rests twice as long; otherwise all three engines take
// turns again.
type turns struct {
	rest  time.Duration
	trial time.Duration // shortest time for which the result of a trial request is awaited

	mu      sync.Mutex
	next    int
	engines []engineTurn
}

type engineTurn struct {
	until  time.Time // end of the rest; zero: in use
	failed time.Time // time of the last failure
	fails  int       // failures since the last whole answer

	requests, failures uint64 // since the start
}

// doublings bounds the rest of an engine that fails repeatedly: 16 times the first rest.
const doublings = 4

func newTurns(count int, rest, trial time.Duration) *turns {
	return &turns{rest: rest, trial: trial, engines: make([]engineTurn, count)}
}

// peek returns the next engine for a request that does not count as a turn. If these requests advanced the turn, a
// client that alternates them with completions could direct all completions to the same engine.
func (t *turns) peek(now time.Time, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next
	i := t.choose(now, true, tried)
	t.next = at
	return i
}

// take returns the next engine that is not in tried. If all these engines rest and allowResting is set, the result is
// the engine with the earliest end of a rest. If there is no engine, the result is -1.
func (t *turns) take(now time.Time, anyway bool, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.choose(now, anyway, tried)
	if i < 0 {
		return i
	}
	e := &t.engines[i]
	e.requests++
	if !e.until.IsZero() && !now.Before(e.until) {
		e.until = now.Add(max(t.restTime(i), t.trial)) // keep further requests away: this request is the trial
	}
	return i
}

// choose returns the next engine and advances the turn. The caller holds mu.
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

// restTime returns the length of an engine's rest, by the number of failures.
func (t *turns) restTime(i int) time.Duration {
	return t.rest << min(max(t.engines[i].fails-1, 0), doublings)
}

// failed lets an engine rest, twice as long each time. Many requests may fail at once for the same reason, so a request
// that began before the last failure does not count again. For an engine that hangs, atLeast is positive: the engine
// has not failed again, but rests for at least that long from now.
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
		e.until = now.Add(t.restTime(i))
	}
	if until := now.Add(atLeast); atLeast > 0 && e.until.Before(until) {
		e.until = until
	}
}

// clientLeft ends a trial without a result, for example because the client of the trial request has disconnected. The
// next request becomes the trial.
func (t *turns) clientLeft(i int, begun, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.engines[i]; !begun.Before(e.failed) && now.Before(e.until) {
		e.until = now
	}
}

// answered ends the rest of an engine that answers a request which began after the last failure. A complete answer also
// clears the failures.
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

// snapshot returns a copy of the state of all engines.
func (t *turns) snapshot() []engineTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.engines)
}

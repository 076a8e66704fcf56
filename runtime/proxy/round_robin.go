package proxy

import (
	"slices"
	"sync"
	"time"
)

// roundRobin selects engines round-robin, by the index in the configuration. An engine that failed rests. After the
// rest the engine gets a trial request, and further requests once the trial is being answered. The methods may be
// called from any goroutine.
//
// Example: engine 1 of three refuses a connection. For Config.RestTime, requests go to engines 0 and 2. Then a single
// request goes to engine 1. If this request fails, the engine rests twice as long; otherwise all three engines take
// turns again.
type roundRobin struct {
	rest  time.Duration
	trial time.Duration // shortest time for which the result of a trial request is awaited

	mu      sync.Mutex
	next    int
	engines []engineState
}

type engineState struct {
	restUntil     time.Time // end of the rest; zero: in use
	lastFailure   time.Time // time of the last failure
	failureStreak int       // failures since the last whole answer

	requests, failures uint64 // since the start
}

// restDoublings bounds the rest of an engine that fails repeatedly: 16 times the first rest.
const restDoublings = 4

func newRoundRobin(count int, rest, trial time.Duration) *roundRobin {
	return &roundRobin{rest: rest, trial: trial, engines: make([]engineState, count)}
}

// peekEngine returns the next engine for a request that does not count as a turn. If these requests advanced the turn,
// a client that alternates them with completions could direct all completions to the same engine.
func (t *roundRobin) peekEngine(now time.Time, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next
	i := t.chooseEngine(now, true, tried)
	t.next = at
	return i
}

// nextEngine returns the next engine that is not in tried. If all these engines rest and allowResting is set, the
// result is the engine with the earliest end of a rest. If there is no engine, the result is -1.
func (t *roundRobin) nextEngine(now time.Time, allowResting bool, tried map[int]bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.chooseEngine(now, allowResting, tried)
	if i < 0 {
		return i
	}
	e := &t.engines[i]
	e.requests++
	if !e.restUntil.IsZero() && !now.Before(e.restUntil) {
		e.restUntil = now.Add(max(t.restTimeOf(i), t.trial)) // keep further requests away: this request is the trial
	}
	return i
}

// chooseEngine returns the next engine and advances the turn. The caller holds mu.
func (t *roundRobin) chooseEngine(now time.Time, allowResting bool, tried map[int]bool) int {
	resting := -1
	for range t.engines {
		i := t.next
		t.next = (t.next + 1) % len(t.engines)
		switch until := t.engines[i].restUntil; {
		case tried[i]:
		case !now.Before(until):
			return i
		case allowResting && (resting < 0 || until.Before(t.engines[resting].restUntil)):
			resting = i
		}
	}
	return resting
}

// restTimeOf returns the length of an engine's rest, by the number of failures.
func (t *roundRobin) restTimeOf(i int) time.Duration {
	return t.rest << min(max(t.engines[i].failureStreak-1, 0), restDoublings)
}

// onFailure lets an engine rest, twice as long each time. Many requests may fail at once for the same reason, so a
// request that began before the last failure does not count again. For an engine that hangs, atLeast is positive: the
// engine has not failed again, but rests for at least that long from now.
func (t *roundRobin) onFailure(i int, begun, now time.Time, atLeast time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.engines[i]
	if !begun.Before(e.lastFailure) {
		e.failures++
	}
	if t.rest == 0 {
		return
	}
	if !begun.Before(e.lastFailure) {
		e.failureStreak, e.lastFailure = e.failureStreak+1, now
		e.restUntil = now.Add(t.restTimeOf(i))
	}
	if until := now.Add(atLeast); atLeast > 0 && e.restUntil.Before(until) {
		e.restUntil = until
	}
}

// abandonTrial ends a trial without a result, for example because the client of the trial request has disconnected. The
// next request becomes the trial.
func (t *roundRobin) abandonTrial(i int, begun, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.engines[i]; !begun.Before(e.lastFailure) && now.Before(e.restUntil) {
		e.restUntil = now
	}
}

// onAnswer ends the rest of an engine that answers a request which began after the last failure. A complete answer also
// clears the failures.
func (t *roundRobin) onAnswer(i int, begun time.Time, whole bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.engines[i]
	if begun.Before(e.lastFailure) {
		return
	}
	e.restUntil = time.Time{}
	if whole {
		e.failureStreak = 0
	}
}

// copyStates returns a copy of the state of all engines.
func (t *roundRobin) copyStates() []engineState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.engines)
}

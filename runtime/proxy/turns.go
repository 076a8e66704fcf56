package proxy

import (
	"sync"
	"time"
)

// turns hands out engines in turn, by their places in the configuration. One that failed rests. It may be used from any
// goroutine.
type turns struct {
	rest time.Duration

	mu    sync.Mutex
	next  int
	until []time.Time // when it has rested
}

func newTurns(count int, rest time.Duration) *turns {
	return &turns{rest: rest, until: make([]time.Time, count)}
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
	return t.choose(now, anyway, tried)
}

func (t *turns) choose(now time.Time, anyway bool, tried map[int]bool) int {
	resting := -1
	for range t.until {
		i := t.next
		t.next = (t.next + 1) % len(t.until)
		switch {
		case tried[i]:
		case !now.Before(t.until[i]):
			return i
		case anyway && (resting < 0 || t.until[i].Before(t.until[resting])):
			resting = i
		}
	}
	return resting
}

// failed has an engine rest.
func (t *turns) failed(i int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until[i] = now.Add(t.rest)
}

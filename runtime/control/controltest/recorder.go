// Package controltest holds every control.Transport to the contract of package control. [Run] is the test suite.
// [Endpoint] drives a transport, and [Recorder] is a sink that records the events; tests in further packages use both
// as well.
package controltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// eventTimeout limits the time for which a test waits for an event. The value only decides how soon a broken transport
// is reported.
const eventTimeout = time.Minute

// Recorder is a control.Sink that keeps all events in their order.
type Recorder struct {
	mu      sync.Mutex
	events  []effects.Event
	changed chan struct{} // closed and replaced at each event
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{changed: make(chan struct{})} }

// Post records ev.
func (r *Recorder) Post(ev effects.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	close(r.changed)
	r.changed = make(chan struct{})
}

// Events returns the events so far.
func (r *Recorder) Events() []effects.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]effects.Event(nil), r.events...)
}

// Await returns the first event of type E, past or future, for which matches returns true. The test fails if no
// such event arrives.
func Await[E effects.Event](t testing.TB, r *Recorder, matches func(E) bool) E {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	seen := 0
	for {
		r.mu.Lock()
		events, changed := r.events, r.changed
		r.mu.Unlock()
		for ; seen < len(events); seen++ {
			if ev, ok := events[seen].(E); ok && matches(ev) {
				return ev
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			var zero E
			t.Fatalf("no %T that fits came in %s", zero, eventTimeout)
		}
	}
}

// Count returns how many of the events so far are of type E and fit.
func Count[E effects.Event](r *Recorder, matches func(E) bool) int {
	n := 0
	for _, ev := range r.Events() {
		if ev, ok := ev.(E); ok && matches(ev) {
			n++
		}
	}
	return n
}

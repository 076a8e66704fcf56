package planetest

import (
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// An EventRecorder records the events that a plane and its pool posted.
type EventRecorder interface{ recordedEvents() *inbox }

// An inbox keeps events until a test removes the events.
type inbox struct {
	mu     sync.Mutex
	moved  chan struct{} // closed and replaced at each event
	events []effects.Event
}

func newInbox() inbox { return inbox{moved: make(chan struct{})} }

func (i *inbox) recordedEvents() *inbox { return i }

// addEvent adds an event. The caller holds the mutex.
func (i *inbox) addEvent(ev effects.Event) {
	i.events = append(i.events, ev)
	close(i.moved)
	i.moved = make(chan struct{})
}

// AwaitEvent waits for the first event of type E that fits, and removes that event.
func AwaitEvent[E effects.Event](tb testing.TB, l EventRecorder, fits func(E) bool) E {
	tb.Helper()
	n := l.recordedEvents()
	late := time.NewTimer(eventTimeout)
	defer late.Stop()
	for {
		n.mu.Lock()
		for i, ev := range n.events {
			if e, ok := ev.(E); ok && fits(e) {
				n.events = append(n.events[:i], n.events[i+1:]...)
				n.mu.Unlock()
				return e
			}
		}
		moved, seen := n.moved, len(n.events)
		n.mu.Unlock()
		select {
		case <-moved:
		case <-late.C:
			var none E
			tb.Fatalf("no %T came; %d other events wait", none, seen)
		}
	}
}

// CountEvents returns the number of events of type E that fit and were not taken out.
func CountEvents[E effects.Event](l EventRecorder, fits func(E) bool) (count int) {
	n := l.recordedEvents()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events {
		if e, ok := ev.(E); ok && fits(e) {
			count++
		}
	}
	return count
}

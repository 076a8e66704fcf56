package runtime

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A mailbox is everything that waits for the loop, in order of arrival.
//
// It is bounded, and blocks nobody who completes something: there is at most one completion for each
// effect in progress, which the machine's Limits bound, and commands are counted where they are
// submitted. Only what peers send at will has a quota here, in messages and in bytes. At the quota the
// transport waits inside Post, reads nothing more, and so pushes back on the peers.
type mailbox struct {
	wake chan struct{} // holds one token while something waits

	mu     sync.Mutex
	room   sync.Cond // told when the quota is free again
	events []effects.Event
	spare  []effects.Event // the array that take gave out last, to be used again

	received, receivedMax           int // messages of peers that wait
	receivedBytes, receivedBytesMax int
	closed                          bool
}

func newMailbox(receivedMax, receivedBytesMax int) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), receivedMax: receivedMax, receivedBytesMax: receivedBytesMax}
	m.room.L = &m.mu
	return m
}

// Post takes an event from any goroutine. It waits only with a *effects.Received, until the loop has
// room. After close it forgets them.
func (m *mailbox) Post(ev effects.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := ev.(*effects.Received); ok {
		for !m.closed && m.received > 0 && (m.received >= m.receivedMax || m.receivedBytes+len(r.Body) > m.receivedBytesMax) {
			m.room.Wait()
		}
		m.received++
		m.receivedBytes += len(r.Body)
	}
	if m.closed {
		return
	}
	m.events = append(m.events, ev)
	m.wakeUp()
}

// PostAll takes events that the loop gets one directly after the other. They are none of *effects.Received.
func (m *mailbox) PostAll(events []effects.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.events = append(m.events, events...)
	m.wakeUp()
}

func (m *mailbox) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default: // It has a token already.
	}
}

// take returns all that waits. The slice is the caller's until its next take.
func (m *mailbox) take() []effects.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := m.events
	clear(m.spare) // Bodies of the batch before are not kept alive.
	m.events, m.spare = m.spare[:0], batch
	m.received, m.receivedBytes = 0, 0
	m.room.Broadcast()
	return batch
}

func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.events = true, nil
	m.room.Broadcast()
}

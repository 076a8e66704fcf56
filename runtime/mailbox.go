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
	step   func()    // steps the machine on the caller's goroutine, if no other one does; nil until the loop runs
	held   int       // goroutines between Hold and Step
	taking bool      // a goroutine steps the machine, and looks here again before it rests
	more   bool      // there is more to do at once, whatever waits here
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
			m.token() // Whoever holds the mailbox may be the one that waits here.
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

// wakeUp wakes the loop's goroutine, unless another one takes what waits.
func (m *mailbox) wakeUp() {
	if m.held == 0 && !m.taking {
		m.token()
	}
}

func (m *mailbox) token() {
	select {
	case m.wake <- struct{}{}:
	default: // It has a token already.
	}
}

// Hold implements stepper.Stepper.
func (m *mailbox) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held++
}

// Step implements stepper.Stepper.
func (m *mailbox) Step() {
	m.mu.Lock()
	m.held--
	step := m.step
	if len(m.events) == 0 || m.taking {
		step = nil
	} else if step == nil {
		m.token()
	}
	m.mu.Unlock()
	if step != nil {
		step()
	}
}

// steps says how goroutines that post can step the machine.
func (m *mailbox) steps(step func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step = step
}

// rouse wakes the loop's goroutine if something waits that no goroutine is about to take.
func (m *mailbox) rouse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 && !m.taking {
		m.token()
	}
}

// again says that there is more to do after this round.
func (m *mailbox) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.more = true
}

// begin says that the caller takes what waits, and looks here again by rest.
func (m *mailbox) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taking = true
}

// rest ends a round. It reports whether the caller is to go on with another one, because something waits and it would;
// otherwise what is left is the loop's goroutine's.
func (m *mailbox) rest(would bool) (goOn bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 && would && !m.more {
		return true
	}
	m.taking = false
	if len(m.events) > 0 || m.more {
		m.more = false
		m.token()
	}
	return false
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

package runtime

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// A mailbox holds all events that wait for the loop, in order of arrival.
//
// The mailbox is bounded, and never blocks a goroutine that posts a completion: each effect in flight has at most one
// completion, the machine's Limits bound the effects, and commands are counted at submission. Only messages of peers,
// which peers send at any time, have a quota here, in messages and in bytes. When the quota is used up, the transport
// blocks inside Post and reads nothing more, which is backpressure on the peers.
type mailbox struct {
	wake chan struct{} // holds one token while an event waits

	mu sync.Mutex
	// step steps the machine on the caller's goroutine, unless another goroutine does. The function is nil until the
	// loop runs.
	step func()
	held int // the number of goroutines between Hold and Step
	// taking means that a goroutine steps the machine, and will check the mailbox again at the end of the round.
	taking bool
	// more means that the machine has more work to do at once, whether or not events wait.
	more   bool
	room   sync.Cond // signalled when the quota is free again
	events []effects.Event
	spare  []effects.Event // the array that the previous take returned, for reuse

	received, receivedMax           int // the number of peers' messages that wait, and its limit
	receivedBytes, receivedBytesMax int
	closed                          bool
}

func newMailbox(receivedMax, receivedBytesMax int) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), receivedMax: receivedMax, receivedBytesMax: receivedBytesMax}
	m.room.L = &m.mu
	return m
}

// Post appends an event; any goroutine may call Post. The call blocks only for a *effects.Received, until the quota
// has room. After close, events are discarded.
func (m *mailbox) Post(ev effects.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := ev.(*effects.Received); ok {
		for !m.closed && m.received > 0 && (m.received >= m.receivedMax || m.receivedBytes+len(r.Body) > m.receivedBytesMax) {
			// The goroutine that holds the mailbox may be the goroutine that waits here, so the loop's goroutine is
			// woken.
			m.token()
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

// PostAll appends events that the loop takes in direct sequence. None of the events may be a *effects.Received.
func (m *mailbox) PostAll(events []effects.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.events = append(m.events, events...)
	m.wakeUp()
}

// wakeUp wakes the loop's goroutine, unless another goroutine will take the events. The caller holds m.mu.
func (m *mailbox) wakeUp() {
	if m.held == 0 && !m.taking {
		m.token()
	}
}

// token puts the wake token into the channel, if the channel is empty.
func (m *mailbox) token() {
	select {
	case m.wake <- struct{}{}:
	default: // The channel already holds a token.
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

// steps sets the function by which goroutines that post can step the machine.
func (m *mailbox) steps(step func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step = step
}

// rouse wakes the loop's goroutine if events wait that no goroutine is about to take.
func (m *mailbox) rouse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 && !m.taking {
		m.token()
	}
}

// again records that more work has to be done after this round.
func (m *mailbox) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.more = true
}

// begin records that the caller takes the events, and will check the mailbox again at the end of the round.
func (m *mailbox) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taking = true
}

// rest ends a round. The result says whether the caller should do another round, which is the case if events wait and
// the caller would continue. Otherwise the remaining work is left to the loop's goroutine.
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

// take returns all events that wait. The slice belongs to the caller until the next call.
func (m *mailbox) take() []effects.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := m.events
	clear(m.spare) // Do not keep the bodies of the previous batch alive.
	m.events, m.spare = m.spare[:0], batch
	m.received, m.receivedBytes = 0, 0
	m.room.Broadcast()
	return batch
}

// close discards all events, and releases the transports that wait in Post.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.events = true, nil
	m.room.Broadcast()
}

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
	// stepFunc steps the machine on the caller's goroutine, unless another goroutine does. The function is nil until
	// the loop runs.
	stepFunc func()
	holders  int // the number of goroutines between Hold and Step
	// stepping means that a goroutine steps the machine, and will check the mailbox again at the end of the round.
	stepping bool
	// moreWork means that the machine has more work to do at once, whether or not events wait.
	moreWork  bool
	quotaFree sync.Cond // signalled when the quota is free again
	events    []effects.Event
	spare     []effects.Event // the array that the previous takeEvents returned, for reuse

	received, receivedMax           int // the number of peers' messages that wait, and its limit
	receivedBytes, receivedBytesMax int
	closed                          bool
}

func newMailbox(receivedMax, receivedBytesMax int) *mailbox {
	m := &mailbox{wake: make(chan struct{}, 1), receivedMax: receivedMax, receivedBytesMax: receivedBytesMax}
	m.quotaFree.L = &m.mu
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
			m.putToken()
			m.quotaFree.Wait()
		}
		m.received++
		m.receivedBytes += len(r.Body)
	}
	if m.closed {
		return
	}
	m.events = append(m.events, ev)
	m.wakeLoop()
}

// PostAll appends events that the loop takes in direct sequence. None of the events may be a *effects.Received.
func (m *mailbox) PostAll(events []effects.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.events = append(m.events, events...)
	m.wakeLoop()
}

// wakeLoop wakes the loop's goroutine, unless another goroutine will take the events. The caller holds m.mu.
func (m *mailbox) wakeLoop() {
	if m.holders == 0 && !m.stepping {
		m.putToken()
	}
}

// putToken puts the wake token into the channel, if the channel is empty.
func (m *mailbox) putToken() {
	select {
	case m.wake <- struct{}{}:
	default: // The channel already holds a token.
	}
}

// Hold implements stepper.Stepper.
func (m *mailbox) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holders++
}

// Step implements stepper.Stepper.
func (m *mailbox) Step() {
	m.mu.Lock()
	m.holders--
	step := m.stepFunc
	if len(m.events) == 0 || m.stepping {
		step = nil
	} else if step == nil {
		m.putToken()
	}
	m.mu.Unlock()
	if step != nil {
		step()
	}
}

// setStepFunc sets the function by which goroutines that post can step the machine.
func (m *mailbox) setStepFunc(step func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepFunc = step
}

// wakeIfPending wakes the loop's goroutine if events wait that no goroutine is about to take.
func (m *mailbox) wakeIfPending() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 && !m.stepping {
		m.putToken()
	}
}

// requestRound records that more work has to be done after this round.
func (m *mailbox) requestRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moreWork = true
}

// beginRound records that the caller takes the events, and will check the mailbox again at the end of the round.
func (m *mailbox) beginRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stepping = true
}

// endRound ends a round. The result says whether the caller should do another round, which is the case if events wait
// and the caller would continue. Otherwise the remaining work is left to the loop's goroutine.
func (m *mailbox) endRound(mayContinue bool) (another bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.events) > 0 && mayContinue && !m.moreWork {
		return true
	}
	m.stepping = false
	if len(m.events) > 0 || m.moreWork {
		m.moreWork = false
		m.putToken()
	}
	return false
}

// takeEvents returns all events that wait. The slice belongs to the caller until the next call.
func (m *mailbox) takeEvents() []effects.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := m.events
	clear(m.spare) // Do not keep the bodies of the previous batch alive.
	m.events, m.spare = m.spare[:0], batch
	m.received, m.receivedBytes = 0, 0
	m.quotaFree.Broadcast()
	return batch
}

// close discards all events, and releases the transports that wait in Post.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.events = true, nil
	m.quotaFree.Broadcast()
}

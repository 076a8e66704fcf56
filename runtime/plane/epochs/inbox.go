package epochs

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An Inbox is what has happened to a link and what its goroutine has not got to yet. It is bounded by who fills it: the
// machine has a bound of transfers, the library one of completions, and the peer is held to one here.
type Inbox struct {
	mu      sync.Mutex
	waiting []func(now effects.Time)
	words   int           // of the peer's among them
	wake    chan struct{} // has room for one
}

// wordsMax bounds what the peer has said and nobody has listened to. It has two words for each epoch, and an epoch is
// offered only when the one before is over; one that talks on gets no memory for it while the goroutine waits for the
// device.
const wordsMax = 64

// NewInbox makes one.
func NewInbox() Inbox { return Inbox{wake: make(chan struct{}, 1)} }

// Push has the goroutine of the link do something. It never blocks.
func (b *Inbox) Push(f func(now effects.Time)) {
	b.mu.Lock()
	b.waiting = append(b.waiting, f)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Hear is Push for a word of the peer's. It refuses one too many.
func (b *Inbox) Hear(f func(now effects.Time)) error {
	b.mu.Lock()
	full := b.words == wordsMax
	if !full {
		b.words++
	}
	b.mu.Unlock()
	if full {
		return fmt.Errorf("%w: more than %d messages of the target at once; it answers each offer and fences each epoch once",
			framing.ErrMalformed, wordsMax)
	}
	b.Push(f)
	return nil
}

// Wake is sent to when something was pushed.
func (b *Inbox) Wake() <-chan struct{} { return b.wake }

// Happened is all that was pushed since it was asked last, in order.
func (b *Inbox) Happened() []func(now effects.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting, b.words = nil, 0
	return all
}

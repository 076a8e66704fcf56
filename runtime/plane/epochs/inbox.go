package epochs

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// An Inbox holds the events of a link that were not processed by the link's goroutine yet. The size is bounded at the
// sources: the machine bounds the transfers, the library bounds the completions, and PushFromPeer bounds the peer's
// messages.
type Inbox struct {
	mu           sync.Mutex
	pending      []func(now effects.Time)
	peerMessages int           // the number of pending messages of the peer
	wake         chan struct{} // has a buffer of one
}

// maxMessages bounds the messages of the peer that were not processed yet. An honest peer sends two messages for each
// epoch, and an epoch is offered only when the previous epoch is over. A peer that sends more messages gets no memory
// for the excess while the goroutine waits for the device.
const maxMessages = 64

// NewInbox returns an empty inbox.
func NewInbox() Inbox { return Inbox{wake: make(chan struct{}, 1)} }

// Push makes the link's goroutine call f. Push never blocks.
func (b *Inbox) Push(f func(now effects.Time)) {
	b.mu.Lock()
	b.pending = append(b.pending, f)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// PushFromPeer is like Push, for a message of the peer, and fails if too many messages of the peer are waiting.
func (b *Inbox) PushFromPeer(f func(now effects.Time)) error {
	b.mu.Lock()
	full := b.peerMessages == maxMessages
	if !full {
		b.peerMessages++
	}
	b.mu.Unlock()
	if full {
		return fmt.Errorf("%w: more than %d unprocessed messages of the target; a target answers each offer once and fences "+
			"each epoch once",
			framing.ErrMalformed, maxMessages)
	}
	b.Push(f)
	return nil
}

// Wake returns a channel that receives a value after something was pushed.
func (b *Inbox) Wake() <-chan struct{} { return b.wake }

// TakeAll removes and returns everything that was pushed, in order.
func (b *Inbox) TakeAll() []func(now effects.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.pending
	b.pending, b.peerMessages = nil, 0
	return all
}

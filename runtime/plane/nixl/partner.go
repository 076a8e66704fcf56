package nixl

import "sync"

// A partner is what an initiator knows of the end of its target's agents.
type partner struct {
	mu     sync.Mutex
	gone   uint64 // the newest epoch whose agent the target has destroyed, as it says
	deaf   bool   // nothing that it says is listened to any more
	ended  bool   // its connection has ended
	proven bool   // and that was the word of its kernel
	moved  chan struct{}
}

func newPartner() *partner { return &partner{moved: make(chan struct{})} }

func (p *partner) move(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.moved)
	p.moved = make(chan struct{})
}

// A verdict is what is known of an epoch at the target.
type verdict uint8

const (
	unknown verdict = iota
	over            // nothing of it is left there, or nothing of the target
	never           // no more will be known
	unheard         // it can be known only by the end of the connection
)

// of says what is known of an epoch, and what is closed when that may have changed.
func (p *partner) of(epoch uint64) (verdict, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone >= epoch, p.ended && p.proven:
		return over, p.moved
	case p.ended:
		return never, p.moved
	case p.deaf:
		return unheard, p.moved
	}
	return unknown, p.moved
}

package nixl

import "sync"

// A targetState records what an initiator knows about the end of its target's agents.
type targetState struct {
	mu      sync.Mutex
	gone    uint64 // the newest epoch whose agent the target has reported as destroyed
	deaf    bool   // no further message of the target is processed
	ended   bool   // the target's connection has ended
	proven  bool   // the target's kernel ended the connection
	changed chan struct{}
}

func newTargetState() *targetState { return &targetState{changed: make(chan struct{})} }

func (p *targetState) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// A verdict is what is known about an epoch at the target.
type verdict uint8

const (
	unknown verdict = iota
	over            // nothing of the epoch, or of the target, is left
	never           // nothing more will ever be known
	unheard         // only the end of the connection can tell
)

// verdictOf returns what is known about an epoch, and a channel that is closed when that may have changed.
func (p *targetState) verdictOf(epoch uint64) (verdict, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.gone >= epoch, p.ended && p.proven:
		return over, p.changed
	case p.ended:
		return never, p.changed
	case p.deaf:
		return unheard, p.changed
	}
	return unknown, p.changed
}

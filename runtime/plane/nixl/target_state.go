package nixl

import "sync"

// A targetState records what an initiator knows about the end of its target's agents.
type targetState struct {
	mu            sync.Mutex
	goneEpoch     uint64 // the newest epoch whose agent the target has reported as destroyed
	messagesEnded bool   // no further message of the target is processed
	connEnded     bool   // the target's connection has ended
	provenGone    bool   // the target's kernel ended the connection
	changed       chan struct{}
}

func newTargetState() *targetState { return &targetState{changed: make(chan struct{})} }

func (p *targetState) updateState(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// An epochStatus is what is known about an epoch at the target.
type epochStatus uint8

const (
	statusUnknown      epochStatus = iota
	statusOver                     // nothing of the epoch, or of the target, is left
	statusUnprovable               // nothing more will ever be known
	statusNeedsConnEnd             // only the end of the connection can tell
)

// statusOf returns what is known about an epoch, and a channel that is closed when that may have changed.
func (p *targetState) statusOf(epoch uint64) (epochStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.goneEpoch >= epoch, p.connEnded && p.provenGone:
		return statusOver, p.changed
	case p.connEnded:
		return statusUnprovable, p.changed
	case p.messagesEnded:
		return statusNeedsConnEnd, p.changed
	}
	return statusUnknown, p.changed
}

package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// scatters are the calls of the engine's device code that read the pool, over all fetches. They run on the
// goroutines of those; here they are counted, so that the pool is not unmapped under one.
type scatters struct {
	mailbox *mailbox
	ctx     context.Context // ends all calls
	cancel  context.CancelFunc

	mu      sync.Mutex
	running int
	done    chan struct{} // made by close; closed when none runs any more
}

func newScatters(box *mailbox) *scatters {
	s := &scatters{mailbox: box}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// begin says whether a call may begin; each that does is ended by end.
func (s *scatters) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.running++
	return true
}

// end tells the machine of the end of a call, while the loop still runs.
func (s *scatters) end(corr effects.Corr, code effects.Code) {
	s.mailbox.Post(&effects.Scattered{Corr: corr, Code: code})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 && s.done != nil {
		close(s.done)
	}
}

// refuse tells the machine that a call was not made.
func (s *scatters) refuse(corr effects.Corr) {
	s.mailbox.Post(&effects.Scattered{Corr: corr, Code: effects.Closed})
}

// close ends the calls and waits for them until ctx ends. An error says that they still read the pool. It may be called
// again, and from several goroutines.
func (s *scatters) close(ctx context.Context) error {
	s.mu.Lock()
	s.cancel()
	if s.running == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.done == nil {
		s.done = make(chan struct{})
	}
	s.mu.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == 0 {
		return nil
	}
	return &Error{Op: "close", Code: waitedOut(ctx), Count: s.running, Cause: ctx.Err(),
		Remedy: fmt.Sprintf("%d scatter calls have not returned, so the pool stays mapped until they do; let them return "+
			"when their context ends", s.running)}
}

package runtime

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// scatterCalls counts the running calls of the engine's device code that read the pool, over all fetches. The calls
// run on the goroutines of the fetches; the count prevents that the pool is unmapped while a call still reads it.
type scatterCalls struct {
	mailbox *mailbox
	ctx     context.Context // parent of the contexts of all calls; its end ends the calls
	cancel  context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // made by close; closed when no call runs any more
}

func newScatterCalls(box *mailbox) *scatterCalls {
	s := &scatterCalls{mailbox: box}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// beginCall reports whether a call may start, and counts the call if so. Each call that starts must be ended by end.
func (s *scatterCalls) beginCall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.running++
	return true
}

// endCall reports the end of a call to the machine, if the loop still runs, and uncounts the call.
func (s *scatterCalls) endCall(corr effects.Corr, code effects.Code) {
	s.mailbox.Post(&effects.Scattered{Corr: corr, Code: code})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	if s.running == 0 && s.idle != nil {
		close(s.idle)
	}
}

// refuseCall reports to the machine that a call was not made.
func (s *scatterCalls) refuseCall(corr effects.Corr) {
	s.mailbox.Post(&effects.Scattered{Corr: corr, Code: effects.Closed})
}

// close ends the context of all calls and waits for the calls to return, until ctx ends. An error says that calls
// still read the pool. close may be called again, and from several goroutines.
func (s *scatterCalls) close(ctx context.Context) error {
	s.mu.Lock()
	s.cancel()
	if s.running == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == 0 {
		return nil
	}
	return &Error{Op: "close", Code: contextCode(ctx), Count: s.running, Cause: ctx.Err(),
		Remedy: fmt.Sprintf("%d scatter calls have not returned, so the pool stays mapped until they do; let them return "+
			"when their context ends", s.running)}
}

package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// A ScatterCall is one batch of whole chunks for the engine's device code.
type ScatterCall struct {
	// Ticket is the command that fetches them; chunk i is its item First+i. The batches of a command come
	// in order, each after the one before it has returned; those of different commands at the same time.
	Ticket effects.Ticket
	First  int
	// Chunks are the valid bytes of each, in the pool: only to be read, and only until the call returns.
	Chunks [][]byte
}

// A Scatter hands chunks to the engine: it copies them to where the engine computes, and returns when it
// has read them. An error fails the command, and with it everything that it fetches. The context ends
// when the node closes; a call that goes on all the same keeps the pool mapped.
type Scatter func(context.Context, ScatterCall) error

// scatterWorkers is how many calls of a Scatter run at a time. They wait for devices more than they compute.
const scatterWorkers = 4

// scatters carries out the Scatters of a machine, oldest first. Its queue needs no bound of its own: the
// machine's Limits bound how many Scatters there are.
type scatters struct {
	run     Scatter // nil: the engine gave none
	mailbox *mailbox
	log     *slog.Logger
	ctx     context.Context // of the calls
	cancel  context.CancelFunc

	mu      sync.Mutex
	waiting []scattering
	workers int
	done    chan struct{} // made by close; closed when the last worker has ended
}

type scattering struct {
	corr effects.Corr
	call ScatterCall
}

func newScatters(run Scatter, box *mailbox, log *slog.Logger) *scatters {
	s := &scatters{run: run, mailbox: box, log: log}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// start begins one Scatter, whose chunks are in host memory. It never blocks.
func (s *scatters) start(e *effects.Scatter, chunks [][]byte) {
	if s.run == nil {
		s.mailbox.Post(&effects.Scattered{Corr: e.Corr, Code: effects.Unsupported})
		return
	}
	if s.ctx.Err() != nil {
		s.mailbox.Post(&effects.Scattered{Corr: e.Corr, Code: effects.Closed})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, scattering{e.Corr, ScatterCall{Ticket: e.Ticket, First: int(e.First), Chunks: chunks}})
	if s.workers < scatterWorkers {
		s.workers++
		go s.work()
	}
}

// work runs what waits, and ends when nothing does.
func (s *scatters) work() {
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.workers--
			if s.workers == 0 && s.done != nil {
				close(s.done)
			}
			s.mu.Unlock()
			return
		}
		next := s.waiting[0]
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
		s.mu.Unlock()
		s.mailbox.Post(&effects.Scattered{Corr: next.corr, Code: s.call(next.call)})
	}
}

func (s *scatters) call(c ScatterCall) effects.Code {
	if s.ctx.Err() != nil {
		return effects.Closed
	}
	err := s.run(s.ctx, c)
	switch {
	case err == nil:
		return effects.OK
	case s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()):
		return effects.Closed
	}
	s.log.Error("the engine could not scatter chunks", "ticket", c.Ticket, "first", c.First, "chunks", len(c.Chunks), "err", err)
	return effects.Faulted
}

// close ends the calls and waits for them, for patience (but a second, if it is less) and at most until ctx
// ends. An error says that they still read the pool.
func (s *scatters) close(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, max(patience, time.Second))
	defer cancel()
	s.cancel()
	s.mu.Lock()
	if s.workers == 0 {
		s.mu.Unlock()
		return nil
	}
	s.done = make(chan struct{})
	s.mu.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers == 0 {
		return nil
	}
	return &Error{Op: "close", Code: effects.Expired, Count: s.workers, Cause: ctx.Err(),
		Remedy: fmt.Sprintf("%d scatter calls have not returned, so the pool stays mapped; let them return when their context ends", s.workers)}
}

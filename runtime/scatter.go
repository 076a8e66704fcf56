package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// scatters carries out the Scatters of a machine, oldest first.
type scatters struct {
	run     Scatter // nil: the engine gave none
	mailbox *mailbox
	log     *slog.Logger
	ctx     context.Context // of the calls
	cancel  context.CancelFunc
	crew    crew
}

func newScatters(run Scatter, box *mailbox, log *slog.Logger) *scatters {
	s := &scatters{run: run, mailbox: box, log: log, crew: crew{size: scatterWorkers}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// start begins one Scatter, whose chunks are in host memory. It never blocks.
func (s *scatters) start(e *effects.Scatter, chunks [][]byte) {
	corr, call := e.Corr, ScatterCall{Ticket: e.Ticket, First: int(e.First), Chunks: chunks}
	switch {
	case s.run == nil:
		s.mailbox.Post(&effects.Scattered{Corr: corr, Code: effects.Unsupported})
	case s.ctx.Err() != nil:
		s.mailbox.Post(&effects.Scattered{Corr: corr, Code: effects.Closed})
	default:
		s.crew.run(func() { s.mailbox.Post(&effects.Scattered{Corr: corr, Code: s.call(call)}) })
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
	if left := s.crew.wait(ctx); left > 0 {
		return &Error{Op: "close", Code: effects.Expired, Count: left, Cause: ctx.Err(),
			Remedy: fmt.Sprintf("%d scatter calls have not returned, so the pool stays mapped; let them return when their context ends", left)}
	}
	return nil
}

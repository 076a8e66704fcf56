package demo

import (
	"context"
	"sync"
)

// A seat is one place in the cluster where a node runs, with the process that runs there now. A restarted process has
// the same seat.
type seat struct {
	program program
	// env returns the environment of each incarnation, counted from 1. It replaces the program's own; nil: no change.
	env func(life int) []string

	mu      sync.Mutex
	lives   int
	process *process
	back    chan struct{} // non-nil during a crash; closed when the restart has ended
}

// take starts the seat's first process. The caller may call it again after a refusal.
func (s *seat) take(ctx context.Context) error {
	p, err := s.launch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return err
}

func (s *seat) launch(ctx context.Context) (*process, error) {
	s.mu.Lock()
	s.lives++
	life := s.lives
	s.mu.Unlock()
	next := s.program
	if s.env != nil {
		next.env = s.env(life)
	}
	return start(ctx, next)
}

// current returns the process. During a crash, it waits until the restart has ended or the context is cancelled.
func (s *seat) current(ctx context.Context) (*process, error) {
	for {
		s.mu.Lock()
		p, back := s.process, s.back
		s.mu.Unlock()
		if back == nil {
			return p, nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// now returns the process, or during a crash the process that was killed. It returns nil before the first start.
func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// crash kills the process as kill -9 does, calls dead, and starts a successor in the same seat. It fails if the
// successor does not start.
func (s *seat) crash(ctx context.Context, dead func()) error {
	s.mu.Lock()
	old := s.process
	back := make(chan struct{})
	s.back = back
	s.mu.Unlock()
	defer close(back)
	old.kill()
	dead()
	p, err := s.launch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = nil
	if err != nil {
		return err // The killed process stays in the seat; its calls return lost.
	}
	s.process = p
	return nil
}

package demo

import (
	"context"
	"sync"
)

// A seat is one place where a node runs, and the process that runs there now.
type seat struct {
	program program
	// env is what the process of each life, counted from 1, is given beside the program's own; nil: nothing.
	env func(life int) []string

	mu      sync.Mutex
	lives   int
	process *process
	back    chan struct{} // closed when a killed process has a successor; nil while there is one
}

// take starts the seat's first process. It may be called again after a refusal.
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

// current returns the process, waiting for the next one while there is none.
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

// now is the process, or the one that was killed here last; nil before the first.
func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// crash kills the process as kill -9 does, and starts it again at the same place. Between the two it calls dead.
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
		return err // The old one stays, and answers that it is gone.
	}
	s.process = p
	return nil
}

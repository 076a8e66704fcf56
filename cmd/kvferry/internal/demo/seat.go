package demo

import (
	"context"
	"sync"
)

// A slot is a place in the cluster where a node runs, together with the process that runs there now. A restarted
// process has the same slot, and so the same ports and the same configuration.
type seat struct {
	program program
	// processEnv returns the additional environment of an incarnation, counted from 1, which replaces program.env. If
	// processEnv is nil, program.env applies.
	env func(life int) []string

	mu      sync.Mutex
	lives   int
	process *process
	back    chan struct{} // non-nil during a restart; closed when the restart has ended
}

// startFirst starts the slot's first process. The caller may call startFirst again after a refusal.
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

// awaitProcess returns the process. During a restart, it waits until the restart has ended, and fails if the context is
// cancelled first.
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

// currentProcess returns the process, or during a restart the process that was killed. It returns nil before the first
// start.
func (s *seat) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// restart kills the process as kill -9 does, calls whileDead, and starts a successor in the same slot. It fails if the
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
		return err // The killed process stays in the slot; calls of it return lostResponse.
	}
	s.process = p
	return nil
}

package demo

import (
	"context"
	"slices"
	"sync"
)

// A slot is a place in the cluster where a node runs, together with the process that runs there now. A restarted
// process has the same slot, and so the same ports and the same configuration.
type slot struct {
	program program
	release *releaseChoice // chooses the binary, unless program.path names one
	// processEnv returns what the environment of an incarnation, counted from 1, has in addition to program.env. If
	// processEnv is nil, program.env applies alone.
	processEnv func(life int) []string

	mu           sync.Mutex
	incarnations int
	process      *process
	restarted    chan struct{} // non-nil during a restart; closed when the restart has ended
}

// startFirst starts the slot's first process. The caller may call startFirst again after a refusal.
func (s *slot) startFirst(ctx context.Context) error {
	p, err := s.startNext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return err
}

func (s *slot) startNext(ctx context.Context) (*process, error) {
	s.mu.Lock()
	s.incarnations++
	incarnation := s.incarnations
	s.mu.Unlock()
	next := s.program
	if next.path == "" {
		next.path = s.release.programPath(next.name, incarnation)
	}
	if s.processEnv != nil {
		next.env = slices.Concat(next.env, s.processEnv(incarnation))
	}
	return startProcess(ctx, next)
}

// awaitProcess returns the process. During a restart, it waits until the restart has ended, and fails if the context is
// cancelled first.
func (s *slot) awaitProcess(ctx context.Context) (*process, error) {
	for {
		s.mu.Lock()
		p, restarted := s.process, s.restarted
		s.mu.Unlock()
		if restarted == nil {
			return p, nil
		}
		select {
		case <-restarted:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// currentProcess returns the process, or during a restart the process that was killed. It returns nil before the first
// start.
func (s *slot) currentProcess() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// restart kills the process as kill -9 does, calls whileDead, and starts a successor in the same slot. It fails if the
// successor does not start.
func (s *slot) restart(ctx context.Context, whileDead func()) error {
	s.mu.Lock()
	killed := s.process
	restarted := make(chan struct{})
	s.restarted = restarted
	s.mu.Unlock()
	defer close(restarted)
	killed.killAndWait()
	whileDead()
	p, err := s.startNext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarted = nil
	if err != nil {
		return err // The killed process stays in the slot; calls of it return lostResponse.
	}
	s.process = p
	return nil
}

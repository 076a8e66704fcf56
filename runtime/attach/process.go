package attach

import (
	"context"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/runtime/internal/peercred"
)

// A process is one that has attached, for as long as it has a session. Under the server's mutex.
type process struct {
	id       session.Process
	pid      int
	sessions int
	watched  *peercred.Process
	stop     context.CancelFunc // ends the wait for its end
}

// process finds the one that is at the other end of a connection, or begins to watch it. It takes p over. The caller
// releases what it returns.
func (s *Server) process(p *peercred.Process) *process {
	if of := s.processes[p.PID]; of != nil {
		// It has not ended, or we have not heard yet; then whoever has its number now is another.
		if gone, err := of.watched.Gone(); !gone && err == nil {
			_ = p.Close()
			of.sessions++
			return of
		}
		s.exited(of)
	}
	s.lastProcess++
	ctx, stop := context.WithCancel(s.ctx)
	of := &process{id: s.lastProcess, pid: p.PID, sessions: 1, stop: stop, watched: p}
	s.processes[p.PID] = of
	s.tasks.Go(func() {
		defer func() { _ = p.Close() }()
		err := p.Await(ctx)
		if ctx.Err() != nil {
			return // It has no session any more, or the server ends.
		}
		if err != nil {
			s.log.Error("a process cannot be watched, so what it holds is held until the agent ends", "pid", of.pid, "err", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exited(of)
	})
	return of
}

// exited says that a process is gone.
func (s *Server) exited(of *process) {
	if s.processes[of.pid] == of {
		delete(s.processes, of.pid)
		s.step(func(m *session.Machine, out *session.Out) { m.Exited(of.id, out) })
	}
}

// release is the end of whatever kept it watched.
func (p *process) release(s *Server) {
	if p.sessions--; p.sessions == 0 {
		if s.processes[p.pid] == p {
			delete(s.processes, p.pid)
		}
		p.stop()
	}
}

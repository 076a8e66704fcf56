package attach

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/peercred"
)

// A process is one that has attached, for as long as it has a session. Under the server's mutex.
type process struct {
	id       session.Process
	pid      int
	sessions int
	watched  *peercred.Process
	image    string // of the program that attached; empty: it is not known
	looking  bool   // whether that still runs
	ctx      context.Context
	stop     context.CancelFunc // ends the wait for its end
}

// process finds the one that is at the other end of a connection, or begins to watch it. It takes p over. The caller
// releases what it returns; nil says that it cannot be known whether it is the one that has its number.
func (s *Server) process(p *peercred.Process) *process {
	if of := s.processes[p.PID]; of != nil {
		// It has not ended, or we have not heard yet; then whoever has its number now is another.
		gone, err := of.watched.Gone()
		if err != nil {
			_ = p.Close()
			return nil
		}
		if image, known := p.Image(); !gone && (!known || !of.replaced(image)) {
			_ = p.Close()
			of.sessions++
			return of
		}
		s.exited(of)
	}
	s.lastProcess++
	ctx, stop := context.WithCancel(s.ctx)
	of := &process{id: s.lastProcess, pid: p.PID, sessions: 1, ctx: ctx, stop: stop, watched: p}
	of.image, _ = p.Image()
	s.processes[p.PID] = of
	s.tasks.Go(func() {
		err := p.Await(ctx)
		if ctx.Err() != nil {
			_ = p.Close()
			return // It has no session any more, or the server ends.
		}
		if err != nil { // It is asked again when it attaches again.
			s.log.Error("a process cannot be watched, so what it holds is held until the agent ends", "pid", of.pid, "err", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.exited(of)
		_ = p.Close()
	})
	return of
}

// replaced says whether the process has run another program since it attached. That one's memory is gone then, and with
// it every mapping of the pool.
func (p *process) replaced(now string) bool { return p.image != "" && p.image != now }

// lookAgain finds out whether the program that attached still runs, when a connection of its process is cut: an exec
// closes it. What a program held that does not run any more is given back.
func (s *Server) lookAgain(pid int) {
	of := s.processes[pid]
	if of == nil || of.image == "" || of.looking {
		return
	}
	of.looking = true
	s.tasks.Go(func() {
		image, known := of.settled()
		s.mu.Lock()
		defer s.mu.Unlock()
		of.looking = false
		if known && of.replaced(image) && s.processes[pid] == of {
			s.log.Info("a process has attached and runs another program now; what it held is given back", "pid", pid)
			s.exited(of)
		}
	})
}

// settled is the program that the process runs. Connections are closed in the middle of an exec, before that is known.
func (p *process) settled() (image string, known bool) {
	const longest = time.Second
	for pause := time.Millisecond; pause < longest; pause *= 2 {
		if image, known = p.watched.Image(); known {
			break
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return "", false
		}
	}
	return image, known
}

// exited says that a process is gone. What it had put into the streams of a device may go on for a moment: what it held
// is given back after that.
func (s *Server) exited(of *process) {
	if s.processes[of.pid] != of {
		return
	}
	delete(s.processes, of.pid)
	if s.mapping.Export == nil {
		s.step(func(m *session.Machine, out *session.Out) { m.Exited(of.id, out) })
		return
	}
	s.tasks.Go(func() {
		select {
		case <-time.After(runtime.DepartureMargin):
			s.do(func(m *session.Machine, out *session.Out) { m.Exited(of.id, out) })
		case <-s.ctx.Done(): // What engines hold stays theirs.
		}
	})
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

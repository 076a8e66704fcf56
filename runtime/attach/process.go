package attach

import (
	"context"
	"time"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/peercred"
)

// A process is an operating system process that has attached. The record exists while the process has a session. The
// server's mutex protects the record.
type process struct {
	id       session.Process
	pid      int
	sessions int // number of sessions, and of attach calls in progress
	watched  *peercred.Process
	image    string // identifies the program that the process ran when it attached; empty: not known
	looking  bool   // lookAgain is checking whether that program still runs
	ctx      context.Context
	stop     context.CancelFunc // ends the goroutine that waits for the end of the process
}

// process returns the record of the process p, and begins to watch the process if the process is new. The call takes
// over p. The caller must release the returned record. A nil result means that the server cannot tell whether the
// process with this number is the recorded process or a new process that reuses the number.
func (s *Server) process(p *peercred.Process) *process {
	if of := s.processes[p.PID]; of != nil {
		// Either the recorded process is still running, or the end of the process has not been reported yet. In the
		// second case the process that has the number now is a different process.
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
			return // The process has no session any more, or the server ends.
		}
		if err != nil { // The process is watched again when it attaches again.
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

// replaced reports whether the process has executed another program since the attach. An exec destroys the memory of
// the old program, including every mapping of the pool.
func (p *process) replaced(now string) bool { return p.image != "" && p.image != now }

// lookAgain checks whether the program that attached still runs. The server calls it when a connection of the process
// is cut, because an exec closes the connection. The handles of a program that no longer runs are given back. The
// caller holds the server's mutex.
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

// settled returns the identity of the program that the process runs. The call retries for about a second, because an
// exec closes connections before the kernel can report the new program.
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

// exited reports the end of a process to the session machine, which gives back the handles of the process's engines.
// If the pool is in device memory, the report is delayed by runtime.DepartureMargin, because work that the process had
// queued on the device may still touch pages for that time. The caller holds the server's mutex.
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
		case <-s.ctx.Done(): // The server ends; the handles of the engines are not given back.
		}
	})
}

// release removes one reason to watch the process. Without any reason left, the process is no longer watched. The
// caller holds the server's mutex.
func (p *process) release(s *Server) {
	if p.sessions--; p.sessions == 0 {
		if s.processes[p.pid] == p {
			delete(s.processes, p.pid)
		}
		p.stop()
	}
}

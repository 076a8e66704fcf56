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
	id        session.Process
	pid       int
	sessions  int // number of sessions, and of attach calls in progress
	osProcess *peercred.Process
	image     string // identifies the program that the process ran when it attached; empty: not known
	checking  bool   // checkProgram is checking whether that program still runs
	ctx       context.Context
	stop      context.CancelFunc // ends the goroutine that waits for the end of the process
}

// trackProcess returns the record of the process p, and begins to watch the process if the process is new. The call
// takes over p. The caller must call removeSession on the returned record, and holds the server's mutex. A nil result
// means that the server cannot tell whether the process with this number is the recorded process or a new process that
// reuses the number.
func (s *Server) trackProcess(p *peercred.Process) *process {
	if record := s.processes[p.PID]; record != nil {
		// Either the recorded process is still running, or the end of the process has not been reported yet. In the
		// second case the process that has the number now is a different process.
		ended, err := record.osProcess.HasEnded()
		if err != nil {
			_ = p.Close()
			return nil
		}
		if image, known := p.ProgramImage(); !ended && (!known || !record.runsOtherProgram(image)) {
			_ = p.Close()
			record.sessions++
			return record
		}
		s.reportExit(record)
	}
	s.lastProcess++
	ctx, stop := context.WithCancel(s.ctx)
	record := &process{id: s.lastProcess, pid: p.PID, sessions: 1, ctx: ctx, stop: stop, osProcess: p}
	record.image, _ = p.ProgramImage()
	s.processes[p.PID] = record
	s.tasks.Go(func() {
		err := p.AwaitEnd(ctx)
		if ctx.Err() != nil {
			_ = p.Close()
			return // The process has no session any more, or the server ends.
		}
		if err != nil {
			// Nothing awaits the end of the process from here on. A later attach from a process with this number
			// notices the end (HasEnded); if this record has lost all its sessions by then, the attach makes a new
			// record, which is watched.
			s.log.Error("a process cannot be watched, so its handles are kept until the agent ends", "pid", record.pid, "err", err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reportExit(record)
		_ = p.Close()
	})
	return record
}

// runsOtherProgram reports whether the process has executed another program since the attach. An exec destroys the
// memory of the old program, including every mapping of the pool.
func (p *process) runsOtherProgram(image string) bool { return p.image != "" && p.image != image }

// checkProgram checks whether the program that attached still runs. The server calls it when a connection of the
// process is cut, because an exec closes the connection. The handles of a program that no longer runs are given back.
// The caller holds the server's mutex.
func (s *Server) checkProgram(pid int) {
	record := s.processes[pid]
	if record == nil || record.image == "" || record.checking {
		return
	}
	record.checking = true
	s.tasks.Go(func() {
		image, known := record.currentImage()
		s.mu.Lock()
		defer s.mu.Unlock()
		record.checking = false
		if known && record.runsOtherProgram(image) && s.processes[pid] == record {
			s.log.Info("an attached process now runs another program; its handles are released", "pid", pid)
			s.reportExit(record)
		}
	})
}

// currentImage returns the identity of the program that the process runs. The call retries for about a second, because
// an exec closes connections before the kernel can report the new program. By then the memory of the old program is
// gone, so the image of the old program is not reported any more.
func (p *process) currentImage() (image string, known bool) {
	const longest = time.Second
	for pause := time.Millisecond; pause < longest; pause *= 2 {
		if image, known = p.osProcess.ProgramImage(); known {
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

// reportExit reports the end of a process to the session machine, which gives back the handles of the process's
// engines (M3: the stores of an attached engine count as the owner's). If the pool is in device memory, the report is
// delayed by runtime.ProcessEndMargin, because work that the process had queued on the device may still touch pages for
// that time. The caller holds the server's mutex.
func (s *Server) reportExit(record *process) {
	if s.processes[record.pid] != record {
		return
	}
	delete(s.processes, record.pid)
	if s.mapping.Export == nil { // The pool is in host memory, which an ended process cannot touch any more.
		s.stepMachine(func(m *session.Machine, out *session.Effects) { m.OnProcessExit(record.id, out) })
		return
	}
	s.tasks.Go(func() {
		select {
		case <-time.After(runtime.ProcessEndMargin):
			s.lockAndStep(func(m *session.Machine, out *session.Effects) { m.OnProcessExit(record.id, out) })
		case <-s.ctx.Done(): // The server ends; the handles of the engines are not given back.
		}
	})
}

// removeSession removes one reason to watch the process. Without any reason left, the process is no longer watched. The
// caller holds the server's mutex.
func (p *process) removeSession(s *Server) {
	if p.sessions--; p.sessions == 0 {
		if s.processes[p.pid] == p {
			delete(s.processes, p.pid)
		}
		p.stop()
	}
}

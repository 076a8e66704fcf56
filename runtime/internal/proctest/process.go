//go:build unix

// Package proctest supports tests with several processes: a test starts a process, exchanges lines of JSON with the
// process, freezes, resumes and kills the process. The process usually runs the test's own binary; TestMain recognises
// the role of the process by the environment. All waiting ends after Limit.
//
//	child := proctest.Start(t, proctest.SelfCommand("ROLE=receiver"))
//	child.SendJSON(command{Op: "open"})
//	var opened reply
//	child.ReceiveJSON(&opened)
//	child.Freeze()
package proctest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Limit is far longer than any reply takes, and only ends a test that hangs.
const Limit = 2 * time.Minute

// A Process is a child process. Any goroutine may use a Process, but only the test's own goroutine may call the
// methods that can fail the test: ReceiveJSON, Freeze, AwaitFrozen, Resume.
type Process struct {
	t          testing.TB
	cmd        *exec.Cmd
	in         io.WriteCloser
	frozenOnce chan struct{} // closed when the process has frozen for the first time
	exited     chan struct{} // closed when the process has ended and all output has been read

	mu          sync.Mutex
	lines       [][]byte // written by the process and not consumed yet
	outputEnded bool     // there will be no more lines
	frozen      bool
	status      syscall.WaitStatus // set when the process has ended
	changed     chan struct{}      // closed and replaced when one of these fields changes
}

// SelfCommand returns a command that starts this binary once more, with additions to the environment.
func SelfCommand(env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// Start starts a command. The standard error is this process's own, unless the command sets a standard error. When the
// test ends, a process that is still running is killed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: cmd, in: in, frozenOnce: make(chan struct{}), exited: make(chan struct{}),
		changed: make(chan struct{})}
	read := make(chan struct{})
	go p.readOutput(out, read)
	go p.watchStatus(read)
	t.Cleanup(func() {
		p.Kill()
		_ = in.Close()
	})
	return p
}

func (p *Process) readOutput(out io.Reader, done chan<- struct{}) {
	defer close(done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20) // The peer of a plane writes the bytes of all pages in a single line.
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		p.updateState(func() { p.lines = append(p.lines, line) })
	}
	p.updateState(func() { p.outputEnded = true })
}

// watchStatus waits for the process itself, because exec's own wait does not report a freeze.
func (p *Process) watchStatus(read <-chan struct{}) {
	defer close(p.exited)
	for first := true; ; {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || status.Exited() || status.Signaled():
			<-read
			_ = p.cmd.Wait() // The process was waited for; this ends the copying of its standard error.
			p.updateState(func() { p.status, p.frozen = status, false })
			return
		case status.Stopped():
			p.updateState(func() { p.frozen = true })
			if first {
				first = false
				close(p.frozenOnce)
			}
		case status.Continued():
			p.updateState(func() { p.frozen = false })
		}
	}
}

func (p *Process) updateState(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// awaitCondition reports whether a condition, evaluated under the lock, became true before the limit.
func (p *Process) awaitCondition(holds func() bool) bool {
	end := time.NewTimer(Limit)
	defer end.Stop()
	return p.waitUntil(holds, nil, end.C)
}

// waitUntil reports whether a condition, evaluated under the lock, became true before stop was closed or late fired.
func (p *Process) waitUntil(holds func() bool, stop <-chan struct{}, late <-chan time.Time) bool {
	for {
		p.mu.Lock()
		ok, moved := holds(), p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-moved:
		case <-stop:
			return false
		case <-late:
			return false
		}
	}
}

// PID returns the process id. After the end of the process the id may belong to a new process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// WriteLine sends a line to the process. If the process has ended, nothing happens.
func (p *Process) WriteLine(line string) { _, _ = io.WriteString(p.in, line+"\n") }

// SendJSON sends a line of JSON to the process.
func (p *Process) SendJSON(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		p.t.Error(err)
	}
	p.WriteLine(string(line))
}

// CloseInput ends the input of the process.
func (p *Process) CloseInput() { _ = p.in.Close() }

// NextLine waits without a limit for the next line of the process, and returns false if the process ended instead, or
// stop was closed. A nil stop is never closed.
func (p *Process) NextLine(stop <-chan struct{}) (line []byte, ok bool) { return p.nextLine(stop, nil) }

func (p *Process) nextLine(stop <-chan struct{}, late <-chan time.Time) (line []byte, ok bool) {
	p.waitUntil(func() bool {
		if ok = len(p.lines) > 0; ok {
			line, p.lines = p.lines[0], p.lines[1:]
		}
		return ok || p.outputEnded
	}, stop, late)
	return line, ok
}

// ReceiveJSON waits for the next line of JSON of the process and decodes the line into v. Lines that are not JSON are
// skipped.
func (p *Process) ReceiveJSON(v any) {
	p.t.Helper()
	late := time.NewTimer(Limit)
	defer late.Stop()
	for {
		line, ok := p.nextLine(nil, late.C)
		if !ok {
			p.t.Fatal("the process sent no line in time, or has ended")
		}
		if json.Unmarshal(line, v) == nil {
			return
		}
	}
}

// Signal sends the process a signal, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Freeze stops all threads of the process, and returns when all threads are stopped.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	p.AwaitFrozen()
}

// AwaitFrozen waits until the process is stopped, whatever stopped the process.
func (p *Process) AwaitFrozen() {
	p.t.Helper()
	p.awaitCondition(func() bool { return p.frozen || p.outputEnded })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.frozen {
		p.t.Fatal("the process does not freeze")
	}
}

// Resume lets a stopped process continue.
func (p *Process) Resume() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
	if !p.awaitCondition(func() bool { return !p.frozen }) {
		p.t.Fatal("the process does not continue")
	}
}

// Kill kills the process, and returns when the process has ended. If the process has ended before, nothing happens.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// FrozenOnce returns a channel that is closed when the process has been stopped once.
func (p *Process) FrozenOnce() <-chan struct{} { return p.frozenOnce }

// Exited returns a channel that is closed when the process has ended and all output can be read.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitStatus waits for the end of the process and returns the exit status.
func (p *Process) ExitStatus() syscall.WaitStatus {
	<-p.exited
	return p.status
}

//go:build unix

// Package proctest is the rig of tests with processes of their own: it starts one, speaks with it in lines of JSON,
// freezes it, resumes it and kills it. A test's binary becomes such a process by what its TestMain finds in the
// environment. Whatever a test waits for ends by Limit.
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

// Limit is far beyond what any answer takes; it only ends a test that hangs.
const Limit = 2 * time.Minute

// A Process is one as its parent sees it. Any goroutine may use it; only the test's own may call what fails the test:
// Hear, Freeze, AwaitFrozen, Thaw.
type Process struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	stopped chan struct{} // closed when it has frozen for the first time
	gone    chan struct{} // closed when it has ended and all that it said has been read

	mu     sync.Mutex
	lines  [][]byte // said and not heard yet
	silent bool     // no more are to come
	frozen bool
	status syscall.WaitStatus // once it has gone
	moved  chan struct{}      // closed and made anew when one of these changes
}

// Self returns this binary to be started once more, with more in its environment.
func Self(env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// Start starts a command; what it writes to its standard error is this process's own if the command says nothing else.
// When the test ends it is killed, if it has not ended before.
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
	p := &Process{t: t, cmd: cmd, in: in, stopped: make(chan struct{}), gone: make(chan struct{}),
		moved: make(chan struct{})}
	read := make(chan struct{})
	go p.read(out, read)
	go p.watch(read)
	t.Cleanup(func() {
		p.Kill()
		_ = in.Close()
	})
	return p
}

func (p *Process) read(out io.Reader, done chan<- struct{}) {
	defer close(done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20) // A plane's peer says the bytes of all its pages in one line.
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		p.move(func() { p.lines = append(p.lines, line) })
	}
	p.move(func() { p.silent = true })
}

// watch waits for the process itself: exec's own wait does not tell of a freeze.
func (p *Process) watch(read <-chan struct{}) {
	defer close(p.gone)
	for first := true; ; {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || status.Exited() || status.Signaled():
			<-read
			_ = p.cmd.Wait() // It was waited for; this ends what copies its standard error.
			p.move(func() { p.status, p.frozen = status, false })
			return
		case status.Stopped():
			p.move(func() { p.frozen = true })
			if first {
				first = false
				close(p.stopped)
			}
		case status.Continued():
			p.move(func() { p.frozen = false })
		}
	}
}

func (p *Process) move(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.moved)
	p.moved = make(chan struct{})
}

// await returns whether a condition, asked under the lock, held before the limit.
func (p *Process) await(holds func() bool) bool {
	end := time.NewTimer(Limit)
	defer end.Stop()
	return p.until(holds, nil, end.C)
}

// until returns whether a condition, asked under the lock, held before stop was closed or late has come.
func (p *Process) until(holds func() bool, stop <-chan struct{}, late <-chan time.Time) bool {
	for {
		p.mu.Lock()
		ok, moved := holds(), p.moved
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

// PID is its number in the system. It may be another's once the process has gone.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Write gives it a line. To a process that has gone it says nothing.
func (p *Process) Write(line string) { _, _ = io.WriteString(p.in, line+"\n") }

// Say gives it a line of JSON.
func (p *Process) Say(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		p.t.Error(err)
	}
	p.Write(string(line))
}

// CloseInput tells it that nothing more is wanted of it.
func (p *Process) CloseInput() { _ = p.in.Close() }

// Next waits, for as long as it takes, for the next line that it says; false if it ended instead, or stop was closed. A
// nil stop never is.
func (p *Process) Next(stop <-chan struct{}) (line []byte, ok bool) { return p.next(stop, nil) }

func (p *Process) next(stop <-chan struct{}, late <-chan time.Time) (line []byte, ok bool) {
	p.until(func() bool {
		if ok = len(p.lines) > 0; ok {
			line, p.lines = p.lines[0], p.lines[1:]
		}
		return ok || p.silent
	}, stop, late)
	return line, ok
}

// Hear waits for the next line of JSON that it says, and takes it into v; other lines are passed over.
func (p *Process) Hear(v any) {
	p.t.Helper()
	late := time.NewTimer(Limit)
	defer late.Stop()
	for {
		line, ok := p.next(nil, late.C)
		if !ok {
			p.t.Fatal("the process does not answer, or ended instead")
		}
		if json.Unmarshal(line, v) == nil {
			return
		}
	}
}

// Signal sends it a signal, unless it has gone.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Freeze stops every thread of it, and returns when they stand still.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	p.AwaitFrozen()
}

// AwaitFrozen waits until it stands still, whoever stopped it.
func (p *Process) AwaitFrozen() {
	p.t.Helper()
	p.await(func() bool { return p.frozen || p.silent })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.frozen {
		p.t.Fatal("the process does not freeze")
	}
}

// Thaw lets it go on.
func (p *Process) Thaw() {
	p.t.Helper()
	p.Signal(syscall.SIGCONT)
	if !p.await(func() bool { return !p.frozen }) {
		p.t.Fatal("the process does not go on")
	}
}

// Kill ends it at once, and returns when it has gone. Of one that has gone it does nothing.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.gone
}

// Frozen is closed when it has been stopped once.
func (p *Process) Frozen() <-chan struct{} { return p.stopped }

// Gone is closed when it has ended, and all that it said can be heard.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Status waits for its end and returns how it ended.
func (p *Process) Status() syscall.WaitStatus {
	<-p.gone
	return p.status
}

package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// startMax limits the time from the start of a process until the process serves. stopMax limits the time from the end
// of the input until the process ends.
const (
	startMax = 20 * time.Second
	stopMax  = 15 * time.Second
)

// A program describes a child process. The child runs the program of this process, unless path names a different
// program.
type program struct {
	name string
	path string
	args []string
	// argv0 is argument 0 of the child; if it is empty, argument 0 is the path.
	argv0 string
	env   []string // added to the environment of this process; later entries win
	log   io.Writer
	// onLine is called for each line that is not a response of the agent, and onStart when the child has been started.
	// Both may be nil.
	onLine  func([]byte)
	onStart func(*process)
	// readyText is a part of the line with which a child that is not an agent reports that it serves. The child is
	// ended with SIGTERM. If readyText is empty, the child is an agent, and ends at the end of the input.
	readyText string
}

// A refusal is the error of a child that reported the reason that it does not serve.
type refusal struct {
	name     string
	response agent.Response
}

func (r *refusal) Error() string { return fmt.Sprintf("start %s: %s", r.name, r.response.Error) }

// A process is a child that speaks the agent's protocol. It is safe for concurrent calls.
type process struct {
	name      string
	readyText string
	cmd       *exec.Cmd
	in        io.WriteCloser
	ready     chan struct{} // closed when the process serves
	ended     chan struct{} // closed when the output has ended and the process was waited for

	refused *agent.Response // the refusal to serve, or nil; may be read only after ended is closed
	killed  atomic.Bool     // killAndWait was called

	mu       sync.Mutex
	lastID   uint64
	waiting  map[uint64]chan agent.Response
	exit     error
	hasEnded bool
}

// startProcess starts a child and returns when the child serves. It fails with a *refusal if the child reports that it
// will not serve. It also fails if the child ends, or if startMax passes before the child serves.
func startProcess(ctx context.Context, spec program) (*process, error) {
	name := spec.name
	path, err := spec.path, error(nil)
	if path == "" {
		path, err = os.Executable()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, readyText: spec.readyText, cmd: exec.Command(path, spec.args...), ready: make(chan struct{}),
		ended: make(chan struct{}), waiting: map[uint64]chan agent.Response{}}
	if spec.argv0 != "" {
		p.cmd.Args[0] = spec.argv0
	}
	p.cmd.Stderr = spec.log
	p.cmd.Env = append(os.Environ(), spec.env...)
	dieWithParent(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.readOutput(out, spec.onLine)
	if spec.onStart != nil {
		spec.onStart(p)
	}
	limit := time.NewTimer(startMax)
	defer limit.Stop()
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
		if p.refused != nil {
			return nil, &refusal{name, *p.refused}
		}
		return nil, fmt.Errorf("start %s: the process ended before it served: %v", name, p.exit)
	case <-limit.C:
		err = fmt.Errorf("start %s: the process does not serve after %v", name, startMax)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.killAndWait()
	return nil, err
}

func (p *process) readOutput(out io.Reader, notes func([]byte)) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	isReady := false
	for lines.Scan() {
		var r agent.Response
		if !isReady && p.readyText != "" && bytes.Contains(lines.Bytes(), []byte(p.readyText)) {
			isReady = true
			close(p.ready)
		}
		switch err := json.Unmarshal(lines.Bytes(), &r); {
		case err == nil && r.Code != "" && r.ID == 0 && !isReady:
			if isReady = true; r.Code == effects.OK.String() {
				close(p.ready)
			} else {
				p.refused = &r
			}
		case err == nil && r.ID != 0:
			p.deliverResponse(r)
		case notes != nil:
			notes(lines.Bytes())
		}
	}
	// After an overlong line, the rest of the output is read and discarded, because the child would block otherwise.
	_, _ = io.Copy(io.Discard, out)
	exit := p.cmd.Wait()
	p.mu.Lock()
	p.exit, p.hasEnded = exit, true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, w := range waiting {
		w <- lostResponse
	}
	close(p.ended)
}

// lostResponse is the response to calls of a process that has ended.
var lostResponse = agent.Response{Code: effects.PeerLost.String(), Error: "the process has ended"}

func (p *process) deliverResponse(r agent.Response) {
	p.mu.Lock()
	w := p.waiting[r.ID]
	delete(p.waiting, r.ID)
	p.mu.Unlock()
	if w != nil {
		w <- r
	}
}

// callAgent sends a request and waits for the response. It always returns: if the process ends first, the response is
// lostResponse.
func (p *process) callAgent(req agent.Request) agent.Response {
	w := make(chan agent.Response, 1)
	p.mu.Lock()
	if p.hasEnded {
		p.mu.Unlock()
		return lostResponse
	}
	p.lastID++
	req.ID = p.lastID
	p.waiting[req.ID] = w
	line, err := json.Marshal(req)
	if err != nil {
		panic(fmt.Sprintf("BUG: a request that cannot be written: %v", err))
	}
	_, err = p.in.Write(append(line, '\n')) // The lock keeps the lines of concurrent calls apart.
	p.mu.Unlock()
	if err != nil {
		<-p.ended // The process no longer reads, so it has ended or is about to end.
	}
	return <-w
}

// suspend stops the process with SIGSTOP until resume.
func (p *process) suspend() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) } // Signal fails only if the process has ended.

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// killAndWait ends the process with SIGKILL, as a crash would, and waits for the end of the process.
func (p *process) killAndWait() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // Kill fails only if the process has ended.
	<-p.ended
}

// stopAndWait ends the process in order: the process drains and closes. It fails if the process exits with an error, or
// does not end within stopMax.
func (p *process) stopAndWait() error {
	if _ = p.in.Close(); p.readyText != "" {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // Signal fails only if the process has ended.
	}
	limit := time.NewTimer(stopMax)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.killAndWait()
		return fmt.Errorf("%s did not end within %v after the end of its input", p.name, stopMax)
	}
	if p.exit != nil {
		return fmt.Errorf("%s: %w", p.name, p.exit)
	}
	return nil
}

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/effects"
)

// startMax and stopMax bound how long a process may take to serve, and to end after its input did.
const (
	startMax = 20 * time.Second
	stopMax  = 15 * time.Second
)

// A process is one child that speaks the agent's lines. Calls may be made from many goroutines.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan struct{} // closed when it serves
	ended chan struct{} // closed when its output ended and it was waited for

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan agent.Response
	exit    error
	gone    bool
}

// start runs this very program with other arguments. Lines that are no answer of the agent go to notes,
// which may be nil.
func start(ctx context.Context, name string, args []string, log io.Writer, notes func([]byte)) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: exec.Command(self, args...), ready: make(chan struct{}), ended: make(chan struct{}), waiting: map[uint64]chan agent.Response{}}
	p.cmd.Stderr = log
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
	go p.read(out, notes)
	limit := time.NewTimer(startMax)
	defer limit.Stop()
	select {
	case <-p.ready:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("start %s: it ended at once: %v", name, p.exit)
	case <-limit.C:
		err = fmt.Errorf("start %s: it does not serve after %v", name, startMax)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.kill()
	return nil, err
}

func (p *process) read(out io.Reader, notes func([]byte)) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	ready := false
	for lines.Scan() {
		var r agent.Response
		switch err := json.Unmarshal(lines.Bytes(), &r); {
		case err == nil && r.Code != "" && r.ID == 0 && !ready:
			ready = true
			close(p.ready)
		case err == nil && r.ID != 0:
			p.answer(r)
		case notes != nil:
			notes(lines.Bytes())
		}
	}
	// What follows a broken line is read, too, or the child would block.
	_, _ = io.Copy(io.Discard, out)
	exit := p.cmd.Wait()
	p.mu.Lock()
	p.exit, p.gone = exit, true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, w := range waiting {
		w <- lost
	}
	close(p.ended)
}

// lost answers for a process that is gone.
var lost = agent.Response{Code: effects.PeerLost.String(), Error: "the process is gone"}

func (p *process) answer(r agent.Response) {
	p.mu.Lock()
	w := p.waiting[r.ID]
	delete(p.waiting, r.ID)
	p.mu.Unlock()
	if w != nil {
		w <- r
	}
}

// call makes one request and waits for the answer; it always comes, at the latest with the process's
// end.
func (p *process) call(req agent.Request) agent.Response {
	w := make(chan agent.Response, 1)
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return lost
	}
	p.last++
	req.ID = p.last
	p.waiting[req.ID] = w
	line, err := json.Marshal(req)
	if err != nil {
		panic(fmt.Sprintf("BUG: a request that cannot be written: %v", err))
	}
	_, err = p.in.Write(append(line, '\n')) // Under the lock, so that lines stay whole.
	p.mu.Unlock()
	if err != nil {
		<-p.ended // It does not read any more, so it ended or is about to.
	}
	return <-w
}

// kill ends the process as a crash would, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // It fails only for a process that has ended.
	<-p.ended
}

// stop ends the process in order: it drains and closes. The error says that it did not, or not in time.
func (p *process) stop() error {
	_ = p.in.Close()
	limit := time.NewTimer(stopMax)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.kill()
		return fmt.Errorf("%s did not end within %v of its input", p.name, stopMax)
	}
	if p.exit != nil {
		return fmt.Errorf("%s: %w", p.name, p.exit)
	}
	return nil
}

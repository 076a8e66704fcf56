//go:build cgo && linux

package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
	"github.com/kvferry/kvferry/runtime/softnpu"
)

// older lists the symbols that a library of the older sequence lacks.
var older = []string{
	"HcclCommInitClusterInfoMemConfig", "HcclRegisterGlobalMem", "HcclDeregisterGlobalMem", "HcclCommBindMem",
	"HcclCommUnbindMem", "HcclCommPrepare",
}

// A runDir is the run directory in which the processes of a test meet, and their NPUs report.
type runDir struct {
	t       *testing.T
	dir     string
	library string
}

// newRunDir builds the software NPU, without some symbols.
func newRunDir(t *testing.T, hidden ...string) *runDir {
	t.Helper()
	library, err := softnpu.Variant{Hide: hidden}.BuildLibrary()
	if errors.Is(err, softnpu.ErrNoTools) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The name of a test's temporary folder may be too long for sockets.
	dir, err := os.MkdirTemp("", "kvferry-nodes-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &runDir{t, dir, library}
}

// A process is a child process with nodes, as the parent uses it.
type process struct {
	*proctest.Process
	runDir *runDir
	t      *testing.T
	name   string

	mu      sync.Mutex
	last    int
	pending map[int]chan reply // closed if the process ended instead
	ended   bool

	remains string // kind of objects that may be left
	excused string // rule that may be broken
}

// startProcess starts a process, with settings and faults of the software NPU: "FAULTS=done:fail=1".
func (r *runDir) startProcess(name string, settings ...string) *process {
	r.t.Helper()
	cmd := proctest.SelfCommand(libraryVariable+"="+r.library, "CANNEMU_DIR="+r.dir, "CANNEMU_REPORT="+r.dir,
		"CANNEMU_DEVICE_MEMORY=67108864", "CANNEMU_HOST_MEMORY=67108864", "HCCL_INTRA_ROCE_ENABLE=0",
		"HCCL_RDMA_TIMEOUT=14", "HCCL_RDMA_RETRY_CNT=3") // A NIC gives up after 0.3 s.
	for _, s := range settings {
		if !strings.HasPrefix(s, "HCCL_") {
			s = "CANNEMU_" + s
		}
		cmd.Env = append(cmd.Env, s)
	}
	p := &process{runDir: r, t: r.t, name: name, pending: map[int]chan reply{}}
	r.t.Cleanup(p.wantNoViolations) // when the process has ended
	p.Process = proctest.Start(r.t, cmd)
	go p.readReplies()
	return p
}

// readReplies passes each reply to its order. A process replies to orders in the order of their completion.
func (p *process) readReplies() {
	for {
		line, ok := p.NextLine(nil)
		if !ok {
			break
		}
		var w reply
		if json.Unmarshal(line, &w) != nil {
			continue
		}
		p.mu.Lock()
		answer := p.pending[w.ID]
		delete(p.pending, w.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- w
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, answer := range p.pending {
		close(answer)
	}
}

func awaitSignal(t *testing.T, what <-chan struct{}, name string) {
	t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	select {
	case <-what:
	case <-end.C:
		t.Fatalf("it never comes that %s", name)
	}
}

// sendOrder sends an order. The returned channel gets the reply, or is closed if the process ends instead.
func (p *process) sendOrder(o order) <-chan reply {
	p.t.Helper()
	answer := make(chan reply, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		close(answer)
		return answer
	}
	p.last++
	o.ID = p.last
	p.pending[o.ID] = answer
	p.SendJSON(o) // If the process has ended, readReplies closes the channel.
	return answer
}

// awaitReply waits for a reply, and fails the test if there is none.
func (p *process) awaitReply(answer <-chan reply, what string) reply {
	p.t.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	select {
	case w, ok := <-answer:
		if !ok {
			p.t.Fatalf("%s: %s ends instead of an answer", what, p.name)
		}
		return w
	case <-end.C:
		p.t.Fatalf("%s: %s does not answer", what, p.name)
	}
	return reply{}
}

// ask sends an order and waits for the reply.
func (p *process) ask(o order) reply {
	p.t.Helper()
	return p.awaitReply(p.sendOrder(o), o.Op)
}

// mustDo sends an order that must succeed.
func (p *process) mustDo(o order) reply {
	p.t.Helper()
	w := p.ask(o)
	if w.Code != effects.OK {
		p.t.Fatalf("%s: %s %s: %v (%s)", p.name, o.Op, o.Argument, w.Code, w.Text)
	}
	return w
}

// openNode opens a node and returns the node's address.
func (p *process) openNode(s nodeSpec) runtime.Peer {
	p.t.Helper()
	return p.mustDo(order{Op: "open", Node: s.Rank, Spec: &s}).Peer
}

// closeNodes closes nodes, which must free everything, and ends the process, after which nothing may be left on its
// NPU.
func (p *process) closeNodes(seats ...int) {
	p.t.Helper()
	if len(seats) == 0 {
		seats = []int{0}
	}
	for _, i := range seats {
		p.mustDo(order{Op: "close", Node: i})
	}
	p.endProcess()
}

// endProcess ends a process without nodes.
func (p *process) endProcess() {
	p.t.Helper()
	p.CloseInput()
	awaitSignal(p.t, p.Exited(), p.name+" ends")
	if s := p.ExitStatus(); !s.Exited() || s.ExitStatus() != 0 {
		p.t.Errorf("%s ended with %#x", p.name, s)
	}
	live := p.readCounters("live")
	if len(live) == 0 {
		p.t.Errorf("%s has no report of what it left on its NPU", p.name)
	}
	for kind, n := range live {
		if n != 0 && kind != p.remains {
			p.t.Errorf("%s has left %d %s on its NPU", p.name, n, kind)
		}
	}
}

func (p *process) readFile(kind string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.runDir.dir, fmt.Sprintf("%d.%s", p.PID(), kind)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return bytes.Trim(b, "\x00\n")
}

// readCounters reads the counters of the software NPU, whatever state the process is in.
func (p *process) readCounters(kind string) map[string]int64 {
	p.t.Helper()
	all := map[string]int64{}
	for line := range strings.Lines(string(p.readFile(kind))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

func (p *process) wantNoViolations() {
	p.t.Helper()
	for line := range strings.Lines(string(p.readFile("violations"))) {
		if p.excused == "" || !strings.Contains(line, p.excused) {
			p.t.Errorf("%s broke a rule of the vendor: %s", p.name, line)
		}
	}
}

// awaitCounter waits until a counter of the software NPU has reached a value.
func (p *process) awaitCounter(counter string, n int64) {
	p.t.Helper()
	p.awaitCondition(func() bool { return p.readCounters("stats")[counter] >= n }, fmt.Sprint("count ", n, " ", counter))
}

// awaitNone waits until the software NPU has no objects of a kind.
func (p *process) awaitNone(kind string) {
	p.t.Helper()
	p.awaitCondition(func() bool { return p.readCounters("live")[kind] == 0 }, "have no "+kind)
}

func (p *process) awaitCondition(holds func() bool, what string) {
	p.t.Helper()
	for deadline := time.Now().Add(limit); !holds(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is never to %s", p.name, what)
		}
		select {
		case <-p.Exited():
			p.t.Fatalf("%s ends, and is not to %s", p.name, what)
		case <-time.After(time.Millisecond):
		}
	}
}

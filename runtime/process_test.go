package runtime_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// childRole names the environment variable that makes the test's binary a node in a process of its own.
const childRole = "KVFERRY_RUNTIME_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childRole) == "" {
		os.Setenv("CANNEMU_DEVICES", "3") // One for each node of a test.
		goleak.VerifyTestMain(m)
		return
	}
	c := child{out: json.NewEncoder(os.Stdout)}
	if err := c.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// An order is one line to a child.
type order struct {
	Op string // "open", "put", "reclaim", "get", "fetch" or "close"

	Role, Channel string // of open
	Delay         bool   // a receiver keeps what it is offered
	TTL           time.Duration
	Strike        strike

	Peer runtime.Peer // of open, where it is to listen if it renews; of put
	Keys []string     // of put, get and fetch
}

// A word is a child's answer to one order.
type word struct {
	Peer  runtime.Peer
	Code  effects.Code
	Hits  int // get, fetch: chunks that were there
	Wrong int // get, fetch: chunks that were there with other bytes than their key's
}

// A process is a child as its parent sees it.
type process struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	words   chan word
	stopped chan struct{} // closed when it has frozen
	gone    chan struct{} // closed when it has ended
}

// startNode starts a process with one node in it and returns where that listens.
func startNode(t testing.TB, o order) (*process, runtime.Peer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), childRole+"=1")
	cmd.Stderr = os.Stderr
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
	p := &process{t: t, cmd: cmd, in: in, words: make(chan word, 64), stopped: make(chan struct{}),
		gone: make(chan struct{})}
	go p.read(out)
	go p.watch()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.gone
		_ = in.Close()
	})
	o.Op = "open"
	p.say(o)
	return p, p.hear().Peer
}

func (p *process) read(out io.ReadCloser) {
	defer close(p.words)
	defer out.Close()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var w word
		if json.Unmarshal(lines.Bytes(), &w) == nil {
			p.words <- w
		}
	}
}

// watch waits for the process itself: exec's own wait does not tell of a freeze.
func (p *process) watch() {
	defer close(p.gone)
	frozen := false
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || status.Exited() || status.Signaled():
			return
		case status.Stopped() && !frozen:
			frozen = true
			close(p.stopped)
		}
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // It fails only when the process is gone.

// say gives an order. To a process that is gone it says nothing.
func (p *process) say(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		p.t.Error(err)
	}
	_, _ = p.in.Write(append(line, '\n'))
}

// hear waits for the answer to an order.
func (p *process) hear() word {
	p.t.Helper()
	select {
	case w, ok := <-p.words:
		if !ok {
			p.t.Fatal("the process ended instead of answering")
		}
		return w
	case <-within(p.t).Done():
		p.t.Fatal("the process does not answer")
	}
	return word{}
}

func (p *process) does(o order) word {
	p.t.Helper()
	p.say(o)
	return p.hear()
}

// closes demands that the node gave everything back and its process ended well.
func (p *process) closes() {
	p.t.Helper()
	if w := p.does(order{Op: "close"}); w.Code != effects.OK {
		p.t.Errorf("the process closes its node: %v", w.Code)
	}
}

// A child is the process itself.
type child struct {
	out   *json.Encoder
	node  *runtime.Node
	pages []*runtime.Pages
	put   []runtime.PutResult
}

// crash is the testing.TB of a child, where a failure is the end.
type crash struct{ testing.TB }

func (crash) Helper()                  {}
func (crash) Cleanup(func())           {}
func (crash) Context() context.Context { return context.Background() }
func (c crash) Fatal(args ...any)      { c.Fatalf("%s", fmt.Sprintln(args...)) }
func (c crash) Errorf(format string, args ...any) {
	c.Fatalf(format, args...)
}
func (crash) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "child: "+format+"\n", args...)
	os.Exit(1)
}

func (c *child) serve(in io.Reader) error {
	for lines := json.NewDecoder(in); ; {
		var o order
		if err := lines.Decode(&o); err != nil {
			return nil //nolint:nilerr // The parent has closed the pipe: it wants nothing more.
		}
		if err := c.out.Encode(c.carryOut(&o)); err != nil {
			return fmt.Errorf("answer %s: %w", o.Op, err)
		}
	}
}

func (c *child) carryOut(o *order) word {
	tb := crash{}
	switch o.Op {
	case "open":
		c.open(tb, o)
		return word{Peer: peerOf(c.node)}
	case "put":
		pages := mustReserve(tb, c.node, len(o.Keys))
		fill(tb, pages, o.Keys)
		res, err := c.node.Sender().Put(within(tb), runtime.Put{Peer: o.Peer, Request: "r", Keys: o.Keys, Pages: pages,
			Patience: 5 * time.Second})
		c.pages, c.put = append(c.pages, pages), append(c.put, res)
		return word{Code: runtime.CodeOf(err)}
	case "reclaim":
		for i := range c.put {
			wantReturned(tb, c.put[i])
			spoil(tb, c.pages[i])
			mustRelease(tb, c.pages[i])
		}
		c.put, c.pages = nil, nil
	case "get":
		waitFor(tb, c.node, "the end of all reads", quiet)
		return getEach(tb, c.node, o.Keys)
	case "fetch":
		return fetchAll(tb, c.node, o.Keys)
	case "close":
		return word{Code: runtime.CodeOf(c.node.Close(within(tb)))}
	}
	return word{}
}

func (c *child) open(tb testing.TB, o *order) {
	cfg := receiverConfig(tb, o.Channel, nil)
	switch {
	case o.Role == "sender" && o.Peer.Host != "":
		cfg = renewingSenderConfig(tb, o.Channel)
		cfg.InitPorts[0], cfg.Pull.DonePorts[0] = o.Peer.InitPort, o.Peer.AllocPort
		cfg.Pull.TTL, cfg.Push.LeaseGuard = o.TTL, o.TTL/4
	case o.Role == "sender":
		cfg = pullSenderConfig(tb, o.Channel, effects.Addr{})
		cfg.Pull.TTL, cfg.Push.LeaseGuard = o.TTL, o.TTL/4
	case o.Delay:
		cfg = delayedConfig(tb, o.Channel, 2)
		cfg.Push.LeaseGuard = briefly / 4 // It keeps brief offers too.
	}
	c.node = open(tb, cfg)
	checker := contract.New(true)
	strikes := o.Strike.arm(func() { hitSelf(o.Strike.Signal) })
	honest := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	c.node.Watch(
		func(ev effects.Event) { honest(checker.Told(ev)); strikes(ev) },
		func(e effects.Effect) { honest(checker.Asked(e)); strikes(e) })
}

// quiet says that a receiver reads nothing and owes nobody an answer.
func quiet(s rank.Stats) bool { return s.Grants+s.Waiters+s.PagesGranted+s.PagesQuarantined == 0 }

// getEach looks each key up by itself, and compares what is there.
func getEach(tb testing.TB, n *runtime.Node, keys []string) (w word) {
	for _, key := range keys {
		got, err := n.Receiver().Get(within(tb), runtime.Get{Request: "r", Keys: []string{key}})
		if err != nil && runtime.CodeOf(err) != effects.NotFound {
			tb.Fatal(err)
		}
		if got.Len() == 0 {
			continue
		}
		w.Hits++
		b, err := got.Host(0)
		if err != nil {
			tb.Fatal(err)
		}
		if !isContent(b, key) {
			w.Wrong++
		}
		mustRelease(tb, got)
	}
	return w
}

// fetchAll fetches chunks of their request, as far as that goes.
func fetchAll(tb testing.TB, n *runtime.Node, keys []string) (w word) {
	var err error
	w.Hits, err = n.Receiver().Fetch(within(tb), runtime.Fetch{Request: "r", Keys: keys,
		Scatter: func(_ context.Context, first int, chunks [][]byte) error {
			for i, b := range chunks {
				if !isContent(b, keys[first+i]) {
					w.Wrong++
				}
			}
			return nil
		}})
	w.Code = runtime.CodeOf(err)
	return w
}

// spoil overwrites every byte, as an engine may that has its pages back.
func spoil(tb testing.TB, p *runtime.Pages) {
	for i := range p.Len() {
		b, err := p.Host(i)
		if err != nil {
			tb.Fatal(err)
		}
		for j := range b {
			b[j] = ^b[j]
		}
	}
}

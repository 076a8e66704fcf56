package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/internal/proctest"
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
	Op string // "open", "put", "reclaim", "get", "fetch" or "close", or one of layers or of an attached engine

	Role, Channel string // of open
	Delay         bool   // a receiver keeps what it is offered
	TTL           time.Duration
	Strike        strike
	Layers        *layersOrder // of a node with use_layerwise
	Worker        *worker      // of a rank whose engine's own blocks are registered
	Attached      *attached    // of an engine of this process's node

	Peer runtime.Peer // of open, where it is to listen if it renews; of put
	Keys []string     // of put, get and fetch
}

// A reply is a child's answer to one order.
type reply struct {
	Peer     runtime.Peer
	Finishes runtime.ProducerPeer // where a Worker listens
	Code     effects.Code
	Hits     int // get, fetch: chunks that were there
	Wrong    int // get, fetch: chunks that were there with other bytes than their key's
	// Exposed is of prefill: from when the last layer was computed to the end of all.
	Exposed time.Duration
}

// A process is a child as its parent sees it.
type process struct {
	*proctest.Process
	t testing.TB
}

// startNode starts a process with one node in it and returns where that listens.
func startNode(t testing.TB, o order) (*process, runtime.Peer) {
	t.Helper()
	p := &process{proctest.Start(t, proctest.SelfCommand(childRole+"=1")), t}
	o.Op = "open"
	return p, p.perform(o).Peer
}

// readReply waits for the answer to an order.
func (p *process) readReply() (w reply) {
	p.t.Helper()
	p.ReceiveJSON(&w)
	return w
}

func (p *process) perform(o order) reply {
	p.t.Helper()
	p.SendJSON(o)
	return p.readReply()
}

// closeNode demands that the node gave everything back and its process ended well.
func (p *process) closeNode() {
	p.t.Helper()
	if w := p.perform(order{Op: "close"}); w.Code != effects.OK {
		p.t.Errorf("the process closes its node: %v", w.Code)
	}
}

// A child is the process itself.
type child struct {
	out   *json.Encoder
	node  *runtime.Node
	pages []*runtime.Pages
	put   []runtime.PutResult

	mapped [][]byte // the memory of nodes of its parent
}

func (c *child) serve(in io.Reader) error {
	for lines := json.NewDecoder(in); ; {
		var o order
		if err := lines.Decode(&o); err != nil {
			return nil // The parent has closed the pipe: it wants nothing more.
		}
		if err := c.out.Encode(c.carryOut(&o)); err != nil {
			return fmt.Errorf("answer %s: %w", o.Op, err)
		}
	}
}

func (c *child) carryOut(o *order) reply {
	tb := proctest.TB{}
	if o.Layers != nil && o.Op != "open" {
		return c.carryOutLayers(tb, o)
	}
	if o.Attached != nil {
		return c.carryOutAttached(tb, o)
	}
	switch o.Op {
	case "open":
		c.open(tb, o)
		return reply{Peer: peerOf(c.node), Finishes: producerPeerOf(c.node)}
	case "finish":
		o.Worker.computes(tb, c.node, o.Keys[0], 0, killedBlocks)
		_, err := c.node.Producer().LendBlocks(context.Background(), runtime.FinishedRequest{
			Request: o.Keys[0] + "-00000002", Blocks: blocksOf(0, killedBlocks)})
		return reply{Code: runtime.CodeOf(err)}
	case "put":
		pages := mustReserve(tb, c.node, len(o.Keys))
		fill(tb, pages, o.Keys)
		res, err := c.node.Sender().Put(within(tb), runtime.Put{Peer: o.Peer, Request: "r", Keys: o.Keys, Pages: pages,
			Timeout: 5 * time.Second})
		c.pages, c.put = append(c.pages, pages), append(c.put, res)
		return reply{Code: runtime.CodeOf(err)}
	case "store":
		mustStore(tb, c.node, o.Keys)
	case "reclaim":
		for i := range c.put {
			wantReturned(tb, c.put[i])
			overwrite(tb, c.pages[i])
			mustRelease(tb, c.pages[i])
		}
		c.put, c.pages = nil, nil
	case "get":
		waitFor(tb, c.node, "the end of all reads", isQuiet)
		return getEach(tb, c.node, o.Keys)
	case "fetch":
		return fetchAll(tb, c.node, o.Keys)
	case "close":
		return reply{Code: runtime.CodeOf(c.node.Close(within(tb)))}
	}
	return reply{}
}

func (c *child) open(tb testing.TB, o *order) {
	cfg, rank := receiverConfig(tb, o.Channel, nil), 0
	switch {
	case o.Worker != nil:
		cfg = o.Worker.config(tb, o.Channel)
	case o.Layers != nil:
		cfg, rank = o.Layers.config(tb), o.Layers.Rank
	case o.Role == "sender" && o.Peer.Host != "":
		cfg = renewingSenderConfig(tb, o.Channel)
		cfg.InitPorts[0], cfg.Pull.DonePorts[0] = o.Peer.InitPort, o.Peer.AllocPort
		cfg.Machine.PullTTL, cfg.Machine.LeaseGuard = effects.Duration(o.TTL), effects.Duration(o.TTL/4)
	case o.Role == "sender":
		cfg = pullSenderConfig(tb, o.Channel, effects.Addr{})
		cfg.Machine.PullTTL, cfg.Machine.LeaseGuard = effects.Duration(o.TTL), effects.Duration(o.TTL/4)
	case o.Role == "sharer":
		cfg = sharerConfig(tb, o.Channel, "child", config.MonitorPorts{Pull: o.Peer.InitPort, Reply: o.Peer.AllocPort})
	case o.Delay:
		cfg = delayedConfig(tb, o.Channel, 2)
		cfg.Machine.LeaseGuard = effects.Duration(briefly / 4) // It keeps brief offers too.
	}
	if o.Layers != nil && o.Layers.Alone {
		c.node = openRank(tb, cfg, rank)
		return
	}
	strikes := o.Strike.arm(func() { hitSelf(o.Strike.Signal) })
	checker := contract.New(true)
	honest := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	c.node = openRank(tb, cfg, rank, runtime.WithWatch(
		func(ev effects.Event) { honest(checker.CheckEvent(ev)); strikes(ev) },
		func(e effects.Effect) { honest(checker.CheckEffect(e)); strikes(e) }))
}

// isQuiet says that a receiver reads nothing and owes nobody an answer.
func isQuiet(s rank.Stats) bool {
	return s.Grants+s.PendingRequests+s.PagesGranted+s.PagesQuarantined == 0
}

// getEach looks each key up by itself, and compares what is there.
func getEach(tb testing.TB, n *runtime.Node, keys []string) (w reply) {
	for _, key := range keys {
		got, err := n.Receiver().Get(within(tb), runtime.Get{Request: "r", Keys: []string{key}})
		if err != nil && runtime.CodeOf(err) != effects.NotFound {
			tb.Fatal(err)
		}
		if got.Len() == 0 {
			continue
		}
		w.Hits++
		b, err := got.Bytes(0)
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
func fetchAll(tb testing.TB, n *runtime.Node, keys []string) (w reply) {
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

// overwrite overwrites every byte, as an engine may that has its pages back.
func overwrite(tb testing.TB, p *runtime.Pages) {
	for i := range p.Len() {
		b, err := p.Bytes(i)
		if err != nil {
			tb.Fatal(err)
		}
		for j := range b {
			b[j] = ^b[j]
		}
	}
}

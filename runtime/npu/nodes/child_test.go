//go:build cgo && linux

package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl/acltest"
)

// limit is far longer than any step of a test takes, and only ends a test that hangs.
const limit = time.Minute

// libraryVariable makes the test's binary a process with nodes, on the library in this variable.
const libraryVariable = "KVFERRY_NODES_LIBRARY"

func TestMain(m *testing.M) {
	library := os.Getenv(libraryVariable)
	if library == "" {
		flag.Parse()
		// The tests mostly wait, for processes, leases and timeouts, so more tests run at a time than there are cores.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
		goleak.VerifyTestMain(m)
		return
	}
	c := child{library: library, out: json.NewEncoder(os.Stdout), nodes: map[int]*testNode{}}
	err := c.carryOutOrders(os.Stdin)
	if err == nil && len(c.nodes) == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// A child is that process.
type child struct {
	library string

	mu    sync.Mutex
	out   *json.Encoder
	nodes map[int]*testNode
}

// exitIfBroken ends the process if its machine or driver broke the contract.
func exitIfBroken(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// carryOutOrders carries out orders until the input ends.
func (c *child) carryOutOrders(in io.Reader) error {
	var all sync.WaitGroup
	defer all.Wait()
	for lines := json.NewDecoder(in); ; {
		var o order
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			w, err := c.carryOut(ctx, &o)
			if err != nil {
				w.Code, w.Text = effects.Invalid, err.Error()
			}
			w.ID = o.ID
			c.mu.Lock()
			defer c.mu.Unlock()
			_ = c.out.Encode(w) // To a parent that is gone there is nothing to say.
		})
	}
}

func (c *child) findNode(i int) *testNode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

func (c *child) carryOut(ctx context.Context, o *order) (r reply, err error) {
	if o.Op == "open" {
		return c.openNode(o), nil
	}
	if o.Op == "control" {
		return c.runCommand(o.Argument)
	}
	n := c.findNode(o.Node)
	if n == nil {
		return r, fmt.Errorf("%s: there is no node %d", o.Op, o.Node)
	}
	switch o.Op {
	case "put":
		return n.putChunks(ctx, o)
	case "reclaim":
		return r, n.reclaimPages(ctx)
	case "get":
		return n.getChunks(ctx, o.Keys)
	case "fetch":
		return n.fetchChunks(ctx, o)
	case "hits":
		r.Hits, err = n.node.Receiver().Contains(ctx, o.Keys)
		return r, err
	case "await":
		return r, n.awaitCondition(ctx, o.Argument)
	case "stats":
		return reply{Stats: n.node.Stats()}, nil
	case "close":
		err := n.closeAll(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.nodes, o.Node)
		return r, err
	}
	return r, fmt.Errorf("there is no order %q", o.Op)
}

func (c *child) openNode(o *order) reply {
	n, err := openTestNode(c.library, o.Spec, exitIfBroken)
	if err != nil {
		return errorReply(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[o.Node] = n
	return reply{Peer: n.peerAddr()}
}

// runCommand sends the software NPU a command. A node must have loaded it.
func (c *child) runCommand(command string) (w reply, err error) {
	n, err := acltest.OpenNPU(c.library)
	if err == nil {
		w.Text, err = n.Control(command)
	}
	return w, err
}

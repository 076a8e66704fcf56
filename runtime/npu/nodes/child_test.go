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
	c := child{library: library, out: json.NewEncoder(os.Stdout), seats: map[int]*seat{}}
	err := c.serve(os.Stdin)
	if err == nil && len(c.seats) == 0 {
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
	seats map[int]*seat
}

// broken ends the process if its machine or driver broke the contract.
func broken(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// serve carries out orders until the input ends.
func (c *child) serve(in io.Reader) error {
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

func (c *child) seat(i int) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seats[i]
}

func (c *child) carryOut(ctx context.Context, o *order) (w word, err error) {
	if o.Op == "open" {
		return c.open(o), nil
	}
	if o.Op == "control" {
		return c.control(o.For)
	}
	n := c.seat(o.Seat)
	if n == nil {
		return w, fmt.Errorf("%s: there is no node %d", o.Op, o.Seat)
	}
	switch o.Op {
	case "put":
		return n.put(ctx, o)
	case "reclaim":
		return w, n.reclaim(ctx)
	case "get":
		return n.get(ctx, o.Keys)
	case "fetch":
		return n.fetch(ctx, o)
	case "hits":
		w.Hits, err = n.node.Receiver().Contains(ctx, o.Keys)
		return w, err
	case "await":
		return w, n.await(ctx, o.For)
	case "stats":
		return word{Stats: n.node.Stats()}, nil
	case "close":
		err := n.close(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.seats, o.Seat)
		return w, err
	}
	return w, fmt.Errorf("there is no order %q", o.Op)
}

func (c *child) open(o *order) word {
	n, err := openSeat(c.library, o.Spec, broken)
	if err != nil {
		return said(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seats[o.Seat] = n
	return word{Peer: n.peer()}
}

// control sends the software NPU a command. A node must have loaded it.
func (c *child) control(command string) (w word, err error) {
	n, err := acltest.Find(c.library)
	if err == nil {
		w.Text, err = n.Control(command)
	}
	return w, err
}

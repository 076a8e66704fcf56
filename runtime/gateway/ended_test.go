//go:build cgo && linux

package gateway_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
)

// The processes of libnixl are killed while a plain producer has our blocks, and while a plain consumer has registered.
// What was registered fails, the blocks come back, and the next requests work, also of engines that ask again.
func TestProcessEnds(t *testing.T) {
	n, port := openNode(t)
	p, d := newPlainEngine(t, "P"), newPlainEngine(t, "D")
	receive := func(name string) runtime.ReceptionResult {
		list := []int{3, 9}
		p.fillBlocks(name, list)
		p.finished[name] = list
		r, err := n.Consumer().Register(t.Context(), newRegistration(p, name+"-0123abcd", 0, []uint32{2, 5}))
		if err != nil {
			t.Fatal(err)
		}
		var got runtime.ReceptionResult
		p.runUntil("an end", func() bool {
			select {
			case got = <-r.Done():
				return true
			default:
				return false
			}
		})
		return got
	}
	send := func(name string) runtime.LendingResult {
		for layer := range layers {
			fillContent(nodeBlock(t, n, layer, 4), name, layer, 0)
		}
		at := d.loadRemote("127.0.0.1", port)
		d.registerBlocks(at, name+"-0123abcd", []int{1})
		l, err := n.Producer().LendBlocks(t.Context(), runtime.FinishedRequest{
			Request: name + "-89abcdef", Blocks: []runtime.Blocks{{Logical: []uint32{4}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.runUntil("a completion", func() bool { return d.completed[name+"-0123abcd"] > 0 })
		return <-l.Done()
	}
	if got := receive("before"); got.Err != nil {
		t.Fatal(got.Err)
	}
	if got := send("before"); got.Err != nil {
		t.Fatal(got.Err)
	}
	r, err := n.Consumer().Register(t.Context(), newRegistration(p, "cut-0123abcd", 0, []uint32{2, 5}))
	if err != nil {
		t.Fatal(err)
	}
	p.runUntil("a registration", func() bool { return len(p.registered) == 1 })
	p.registered = nil
	children := libnixltest.Children(t, os.Getpid())
	if len(children) != 2 {
		t.Fatalf("the plane and the gateway have the processes %v", children)
	}
	for _, child := range children {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	got := <-r.Done()
	if e := (*runtime.Error)(nil); !errors.As(got.Err, &e) || e.Code != effects.PeerLost {
		t.Errorf("what was registered ended as %+v", got)
	}
	select {
	case <-r.Returned():
	case <-time.After(limit):
		t.Fatal("the blocks do not come back")
	}
	if got := receive("after"); got.Err != nil || !hasContent(nodeBlock(t, n, 1, 5), "after", 1, 1) {
		t.Errorf("a reception after it ended as %+v", got)
	}
	if got := send("after"); got.Err != nil || !hasContent(d.blockBytes(1, 1), "after", 1, 0) {
		t.Errorf("a loan after it ended as %+v", got)
	}
}

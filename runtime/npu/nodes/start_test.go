//go:build cgo && linux

package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// If memory is missing, a node does not open and reports the reason. Nothing is left of the attempt, and the next
// attempt works. Memory may run out at each allocation in turn.
func TestOutOfMemoryAtTheStart(t *testing.T) {
	for _, c := range []struct {
		role, mode, symbol string
		nth                int // allocations of a start by this function
	}{
		{"receiver", "push", "aclrtMalloc", 1}, {"sender", "pull", "aclrtMalloc", 1},
		{"sender", "offload", "aclrtMallocHost", 1},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.role, " ", c.symbol), func(t *testing.T) {
			t.Parallel()
			r := newRunDir(t)
			for nth := 1; nth <= c.nth; nth++ {
				p := r.startProcess("the node", fmt.Sprintf("FAULTS=call:sym=%s,nth=%d,code=207001", c.symbol, nth))
				one := roce.nodeAt(0, c.role, c.mode)
				w := p.ask(order{Op: "open", Spec: &one})
				if w.Code != effects.NoMemory {
					t.Errorf("allocation %d: it opened as %v (%s)", nth, w.Code, w.Text)
				}
				for kind, n := range p.readCounters("live") {
					if n != 0 {
						t.Errorf("allocation %d: %d %s stay", nth, n, kind)
					}
				}
				p.openNode(one)
				p.closeNodes()
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		p := newRunDir(t).startProcess("the node", "FAULTS=oom:device=0,after=1048576")
		one := roce.nodeAt(0, "receiver", "push")
		if w := p.ask(order{Op: "open", Spec: &one}); w.Code != effects.NoMemory {
			t.Errorf("it opened as %v (%s)", w.Code, w.Text)
		}
		p.endProcess()
	})
}

// The memory of a lost device is lost. Puts end, the peer continues and frees all its memory, and closing the node
// reports the objects that could not be freed.
func TestLostDevice(t *testing.T) {
	for _, w := range wires {
		for _, lost := range []string{"sender", "receiver"} {
			t.Run(fmt.Sprint(w, " ", lost), func(t *testing.T) {
				t.Parallel()
				p := newRunDir(t).newPair(w, "push", func(s, r *nodeSpec) { s.Lease, r.Lease = 2*time.Second, 2*time.Second })
				p.wantMoved("before", 2)
				broken, whole := p.sender, p.receiver
				if lost == "receiver" {
					broken, whole = whole, broken
				}
				broken.mustDo(order{Op: "control", Argument: "faults device:lost=0"})
				if lost == "sender" {
					// The engine of the lost device cannot fill any page.
					if w := broken.ask(order{Op: "put", Peer: p.peer, Keys: keysOf("lost", 2)}); w.Code == effects.OK {
						t.Error("a put works without its device")
					}
				} else {
					whole.ask(order{Op: "put", Peer: p.peer, Keys: keysOf("lost", 2)})
					whole.mustDo(order{Op: "reclaim"})
				}
				if w := broken.ask(order{Op: "close"}); w.Code == effects.OK {
					t.Error("all memory of a lost device was given back")
				}
				broken.Kill()
				whole.mustDo(order{Op: "await", Argument: "quiet"})
				whole.closeNodes()
			})
		}
	}
}

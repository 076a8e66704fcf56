//go:build cgo && linux

package nodes

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A batch that hangs is given up, the next put writes its pages again, and then the batch lands after all. Within the
// bound of the vendor's timeouts the batch never touches these pages (M4). A NIC without any bound breaks every driver;
// this case proves that the tests would notice.
func TestLateLandings(t *testing.T) {
	for name, late := range map[string]string{
		"after it was destroyed": "late:ms=250",
		// The batch does land, and only the wait for the bound keeps it from other chunks.
		"undestroyed": "late:ms=100;call:sym=HcclCommDestroy,nth=1,code=4",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if n := countWrongAfter(t, late); n != 0 {
				t.Errorf("%d chunks were overwritten", n)
			}
		})
	}
	t.Run("beyond any bound", func(t *testing.T) {
		t.Parallel()
		// On a slow machine the next put may come after the late batch; then repeat the case with more time.
		for _, ms := range []int{300, 3000, 15000} {
			if countWrongAfter(t, fmt.Sprintf("late:ms=%d,beyond_r=1", ms)) != 0 {
				return
			}
		}
		t.Error("nobody notices that chunks are overwritten")
	})
}

// countWrongAfter returns how many chunks are wrong that are put after a batch was given up, once that batch has landed
// late or never will.
func countWrongAfter(t *testing.T, late string) int {
	t.Helper()
	room := newRunDir(t)
	sender, receiver := room.startProcess("the sender", firstBatchHangs+";"+late), room.startProcess("the receiver")
	s, r := roce.nodeAt(0, "sender", "push"), roce.nodeAt(1, "receiver", "push")
	s.Transfer, r.Pages = shortTimeout, offerChunks
	peer := receiver.openNode(r)
	sender.openNode(s)
	if w := sender.ask(order{Op: "put", Peer: peer, Keys: keysOf("hangs", offerChunks)}); w.Code != effects.Expired {
		t.Fatalf("the put that hangs ended as %v (%s)", w.Code, w.Text)
	}
	keys := keysOf("next", offerChunks)
	for {
		w := sender.ask(order{Op: "put", Peer: peer, Keys: keys, Timeout: limit / 2})
		if w.Code == effects.OK {
			break
		}
		t.Logf("the next put: %v (%s)", w.Code, w.Text)
	}
	sender.awaitNone("late_transfers")
	if sender.readCounters("stats")["injected"] < 2 {
		t.Error("nothing was to land late")
	}
	w := receiver.mustDo(order{Op: "get", Keys: keys})
	if w.Hits != offerChunks {
		t.Errorf("of %d chunks %d are there", offerChunks, w.Hits)
	}
	return w.Wrong
}

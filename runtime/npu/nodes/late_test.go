//go:build cgo && linux

package nodes

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A batch that hangs is given up, its pages are written anew by the next put, and then it lands after all: within the bound
// that the vendor's timeouts give it never touches them. A NIC that keeps no bound at all is what no driver survives; it is here to
// prove that these tests would notice.
func TestLateLandings(t *testing.T) {
	for name, c := range map[string]struct {
		late  string
		wrong bool
	}{
		"within the bound": {"late:ms=250", false},
		// The communicator is not destroyed, so it does land, and nothing but the wait for the bound keeps it from other chunks.
		"within the bound, undestroyed": {"late:ms=250;call:sym=HcclCommDestroy,nth=1,code=4", false},
		"beyond any bound":              {"late:ms=50,beyond_r=1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room := newRoom(t)
			sender, receiver := room.start("the sender", hanging+";"+c.late), room.start("the receiver")
			s, r := roce.at(0, "sender", "push"), roce.at(1, "receiver", "push")
			s.Transfer, r.Pages = impatience, offerChunks
			peer := receiver.opens(r)
			sender.opens(s)
			if w := sender.asked(order{Op: "put", Peer: peer, Keys: keysOf("hangs", offerChunks)}); w.Code != effects.Expired {
				t.Fatalf("the put that hangs ended as %v (%s)", w.Code, w.Text)
			}
			keys := keysOf("next", offerChunks)
			if w := sender.asked(order{Op: "put", Peer: peer, Keys: keys, Patience: limit / 2}); w.Code != effects.OK {
				t.Fatalf("the next put ended as %v (%s)", w.Code, w.Text)
			}
			sender.drained("late_transfers")
			w := receiver.does(order{Op: "get", Keys: keys})
			if w.Hits != offerChunks || (w.Wrong != 0) != c.wrong {
				t.Errorf("of %d chunks %d are there, %d of them wrong; wrong ones are wanted: %v", len(keys), w.Hits, w.Wrong, c.wrong)
			}
			if sender.report("stats")["injected"] < 2 {
				t.Error("nothing was to land late")
			}
		})
	}
}

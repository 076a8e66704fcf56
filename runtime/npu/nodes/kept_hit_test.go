//go:build cgo && linux

package nodes

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A sender dies while a receiver has deferred its offers, and while its engine fetches them. The chunks are missing, no
// page stays in use, and the chunks that the engine took are right.
func TestKilledLenderOfKeptChunks(t *testing.T) {
	for _, w := range wires {
		for name, fetching := range map[string]bool{"kept": false, "fetched": true} {
			t.Run(string(w)+" "+name, func(t *testing.T) {
				t.Parallel()
				p := newRoom(t).newPair(w, "delay", nil, hanging)
				keys := keysOf("kept", 6)
				p.sender.does(order{Op: "put", Peer: p.peer, Keys: keys})
				var fetch <-chan word
				if fetching {
					fetch = p.receiver.begin(order{Op: "fetch", Keys: keys})
					p.receiver.awaits("injected", 1)
				}
				p.sender.Kill()
				if fetching {
					p.receiver.does(order{Op: "control", For: "release"})
					if got := p.receiver.hear(fetch, "fetch"); got.Code != effects.PeerLost && got.Code != effects.Faulted ||
						got.Wrong != 0 {
						t.Errorf("the fetch took %d chunks, %d of them wrong: %v (%s)", got.Hits, got.Wrong, got.Code, got.Text)
					}
				}
				p.receiver.does(order{Op: "await", For: "nothing"})
				if w := p.receiver.does(order{Op: "hits", Keys: keys}); w.Hits != 0 {
					t.Errorf("%d chunks of a dead sender can be had", w.Hits)
				}
				p.receiver.closes()
			})
		}
	}
}

// Either end is frozen while a receiver has deferred offers, until the offers are over and their pages were reused. The
// chunks are missing or right.
func TestFrozenWithKeptChunks(t *testing.T) {
	for _, w := range wires {
		for _, role := range []string{"sender", "receiver"} {
			t.Run(string(w)+" "+role, func(t *testing.T) {
				t.Parallel()
				p := newRoom(t).newPair(w, "delay", func(s, r *spec) { s.Lease, r.Lease = 2*briefly, 2*briefly })
				keys := p.keepsAtLast()
				frozen, other := p.sender, p.receiver
				if role == "receiver" {
					frozen, other = other, frozen
				}
				frozen.Freeze()
				if role == "receiver" {
					other.does(order{Op: "reclaim"})
				}
				other.does(order{Op: "await", For: "nothing"})
				frozen.Resume()
				if role == "sender" {
					frozen.does(order{Op: "reclaim"})
				}
				if w := p.receiver.asked(order{Op: "fetch", Keys: keys, Patience: briefly}); w.Wrong != 0 || w.Hits != 0 {
					t.Errorf("the engine took %d chunks whose time was over, %d of them wrong: %v", w.Hits, w.Wrong, w.Code)
				}
				p.close()
			})
		}
	}
}

// keepsAtLast puts until the receiver defers the offer: on a slow machine an offer may be over before.
func (p *pair) keepsAtLast() []string {
	p.t.Helper()
	for round := range 100 {
		keys := keysOf(fmt.Sprint("kept", round), offerChunks)
		if w := p.sender.asked(order{Op: "put", Peer: p.peer, Keys: keys}); w.Code == effects.OK {
			return keys
		}
		p.sender.does(order{Op: "reclaim"})
	}
	p.t.Fatal("nothing is kept")
	return nil
}

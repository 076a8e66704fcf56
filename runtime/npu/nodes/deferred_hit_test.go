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
				p := newRunDir(t).newPair(w, "delay", nil, firstBatchHangs)
				keys := keysOf("kept", 6)
				p.sender.mustDo(order{Op: "put", Peer: p.peer, Keys: keys})
				var fetch <-chan reply
				if fetching {
					fetch = p.receiver.sendOrder(order{Op: "fetch", Keys: keys})
					p.receiver.awaitCounter("injected", 1)
				}
				p.sender.Kill()
				if fetching {
					p.receiver.mustDo(order{Op: "control", Argument: "release"})
					if got := p.receiver.awaitReply(fetch, "fetch"); got.Code != effects.PeerLost && got.Code != effects.Faulted ||
						got.Wrong != 0 {
						t.Errorf("the fetch took %d chunks, %d of them wrong: %v (%s)", got.Hits, got.Wrong, got.Code, got.Text)
					}
				}
				p.receiver.mustDo(order{Op: "await", Argument: "nothing"})
				if w := p.receiver.mustDo(order{Op: "hits", Keys: keys}); w.Hits != 0 {
					t.Errorf("%d chunks of a dead sender can be had", w.Hits)
				}
				p.receiver.closeNodes()
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
				p := newRunDir(t).newPair(w, "delay", func(s, r *nodeSpec) { s.Lease, r.Lease = 2*shortLease, 2*shortLease })
				keys := p.putUntilDeferred()
				frozen, other := p.sender, p.receiver
				if role == "receiver" {
					frozen, other = other, frozen
				}
				frozen.Freeze()
				if role == "receiver" {
					other.mustDo(order{Op: "reclaim"})
				}
				other.mustDo(order{Op: "await", Argument: "nothing"})
				frozen.Resume()
				if role == "sender" {
					frozen.mustDo(order{Op: "reclaim"})
				}
				if w := p.receiver.ask(order{Op: "fetch", Keys: keys, Timeout: shortLease}); w.Wrong != 0 || w.Hits != 0 {
					t.Errorf("the engine took %d chunks whose time was over, %d of them wrong: %v", w.Hits, w.Wrong, w.Code)
				}
				p.closeBoth()
			})
		}
	}
}

// putUntilDeferred puts until the receiver defers the offer: on a slow machine an offer may be over before.
func (p *pair) putUntilDeferred() []string {
	p.t.Helper()
	for round := range 100 {
		keys := keysOf(fmt.Sprint("kept", round), offerChunks)
		if w := p.sender.ask(order{Op: "put", Peer: p.peer, Keys: keys}); w.Code == effects.OK {
			return keys
		}
		p.sender.mustDo(order{Op: "reclaim"})
	}
	p.t.Fatal("nothing is kept")
	return nil
}

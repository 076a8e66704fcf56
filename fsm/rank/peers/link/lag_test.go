package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A driver that completes nothing is not asked for ever more: attempts stop until some of the former
// ones have completed, and then go on. (Found by sim explore, scope push-late-crash.)
func TestLaggingDriver(t *testing.T) {
	r := newRig(t)
	h := r.acquirePeer(receiverAddr)
	for range 100 {
		at, ok := r.timers.NextDeadline()
		if !ok {
			t.Fatal("a wanted peer waits for nothing")
		}
		r.now = at
		r.runStep(func(v *env.Env) {
			ref, _ := r.timers.Pop(r.now)
			if ref.Owner != kernel.OwnerLink {
				t.Fatalf("a deadline of owner %d", ref.Owner)
			}
			r.links.OnHandshakeTimer(v, ref)
		})
	}
	if got := uint32(len(r.opens)); got != leftoversMax+1 || r.corrs.Len() > CompletionsMax(peersMax, leftoversMax) {
		t.Fatalf("%d attempts with %d completions outstanding; want %d and at most %d",
			got, r.corrs.Len(), leftoversMax+1, CompletionsMax(peersMax, leftoversMax))
	}
	r.wantState(h, Backoff)

	// Nobody wants it for a while, and yet it cannot go: what it is owed would be forgotten.
	r.links.ReleasePeer(h)
	if r.acquirePeer(PeerAddr{Host: "h2", InitPort: 1, AllocPort: 2}) == 0 ||
		r.acquirePeer(PeerAddr{Host: "h3", InitPort: 1, AllocPort: 2}) != 0 || r.acquirePeer(receiverAddr) != h {
		t.Fatal("a peer with many completions outstanding gave up its place")
	}

	r.opens = r.opens[:leftoversMax+1] // Those of h1.
	for range leftoversMax {
		r.completeOpen(effects.Unreachable)
	}
	for state := Backoff; state != Opening; state, _ = r.links.Outbound(h).State() {
		at, _ := r.timers.NextDeadline()
		r.now = at
		r.runStep(func(v *env.Env) {
			ref, _ := r.timers.Pop(r.now)
			r.links.OnHandshakeTimer(v, ref)
		})
	}
}

package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// A rank that calls peers and is called has room for as many of each, and no two of them share a class. Who comes takes
// the place of one that came, never of one that we call, whose class stays its own.
func TestBothDirectionsHaveClassesOfTheirOwn(t *testing.T) {
	r := newRig(t)
	cfg := config(key1)
	cfg.Directions = 2
	r.links = New(cfg, 1)
	r.pools = memory.New(4, r.links.CountClasses(), prng.Shuffle{}, memory.PoolConfig{Pages: 4, ClassShare: 4})
	r.pool = r.pools.Pool(0)
	if got := r.links.CountClasses(); got != 2*peersMax+1 {
		t.Fatalf("%d classes", got)
	}
	busy := make([]uint32, r.links.CountClasses())
	admit := func(who effects.Incarnation) (h table.Handle) {
		r.now++
		r.runStep(func(v *env.Env) { h = admitPeer(v, &r.links, who, busy) })
		return h
	}
	a, b := r.acquirePeer(receiverAddr), r.acquirePeer(PeerAddr{Host: "h2", InitPort: 1, AllocPort: 2})
	outA, outB := r.links.out.peers.Get(a).row, r.links.out.peers.Get(b).row
	for i := range byte(5) {
		who := effects.Incarnation{0xA + i}
		h := admit(who)
		if h == 0 || classOf(h) == classOf(outA) || classOf(h) == classOf(outB) || r.links.PeerID(classOf(h)) != who {
			t.Fatalf("peer %d got class %d; those that we call have %d and %d", i, classOf(h), classOf(outA), classOf(outB))
		}
		if want := min(int(i)+1, peersMax); r.links.CountInbound() != want {
			t.Fatalf("%d inbound peers after %d hellos; want %d", r.links.CountInbound(), i+1, want)
		}
	}
	if r.links.IncarnationOf(a).isInbound() || r.links.IncarnationOf(b).isInbound() {
		t.Fatal("a peer that we call lost its row to one that calls us")
	}

	// One that nobody wants any more gives its row back with its place, to the next that we call.
	r.links.ReleasePeer(a)
	r.completeOpen(effects.Unreachable)
	for _, again := r.links.NextChanged(); again; _, again = r.links.NextChanged() {
	}
	c := r.acquirePeer(PeerAddr{Host: "h3", InitPort: 1, AllocPort: 2})
	if c == 0 || r.links.IncarnationOf(c).isInbound() || r.links.rows.get(outA) != nil || r.links.CountInbound() != peersMax {
		t.Fatalf("peer %d, %d inbound peers", c, r.links.CountInbound())
	}
}

// A link leads to its peer while it is there, and the index of links holds no more than these.
func TestLinksAreFoundWhileTheyAre(t *testing.T) {
	r := newRig(t)
	h := r.shakeHands(5)
	if r.links.ByLink(5) != h || r.links.ByLink(6) != 0 || r.links.ByLink(0) != 0 || r.links.rows.byLink.Len() != 1 {
		t.Fatalf("link 5 leads to %d, of %d links", r.links.ByLink(5), r.links.rows.byLink.Len())
	}
	r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 6) })
	r.wantState(h, Ready)
	r.runStep(func(v *env.Env) { r.links.OnLinkLost(v, 5) })
	r.wantState(h, Backoff)
	if r.links.ByLink(5) != 0 || r.links.rows.byLink.Len() != 0 {
		t.Fatalf("a link that was lost leads to %d, of %d links", r.links.ByLink(5), r.links.rows.byLink.Len())
	}
}

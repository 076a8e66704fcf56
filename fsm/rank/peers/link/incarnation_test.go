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
	r.pools = memory.New(4, r.links.Classes(), prng.Shuffle{}, memory.PoolConfig{Pages: 4, Share: 4})
	r.pool = r.pools.Pool(0)
	if got := r.links.Classes(); got != 2*peersMax+1 {
		t.Fatalf("%d classes", got)
	}
	busy := make([]uint32, r.links.Classes())
	admit := func(who effects.Incarnation) (h table.Handle) {
		r.now++
		r.do(func(v *env.Env) { h = admitted(v, &r.links, who, busy) })
		return h
	}
	a, b := r.want(where), r.want(Where{Host: "h2", InitPort: 1, AllocPort: 2})
	outA, outB := r.links.out.peers.Get(a).row, r.links.out.peers.Get(b).row
	for i := range byte(5) {
		who := effects.Incarnation{0xA + i}
		h := admit(who)
		if h == 0 || classOf(h) == classOf(outA) || classOf(h) == classOf(outB) || r.links.Who(classOf(h)) != who {
			t.Fatalf("peer %d got class %d; those that we call have %d and %d", i, classOf(h), classOf(outA), classOf(outB))
		}
		if want := min(int(i)+1, peersMax); r.links.InboundLen() != want {
			t.Fatalf("%d inbound peers after %d hellos; want %d", r.links.InboundLen(), i+1, want)
		}
	}
	if r.links.Of(a).inbound() || r.links.Of(b).inbound() {
		t.Fatal("a peer that we call lost its row to one that calls us")
	}

	// One that nobody wants any more gives its row back with its place, to the next that we call.
	r.links.Unwant(a)
	r.opened(effects.Unreachable)
	for _, again := r.links.Changed(); again; _, again = r.links.Changed() {
	}
	c := r.want(Where{Host: "h3", InitPort: 1, AllocPort: 2})
	if c == 0 || r.links.Of(c).inbound() || r.links.rows.get(outA) != nil || r.links.InboundLen() != peersMax {
		t.Fatalf("peer %d, %d inbound peers", c, r.links.InboundLen())
	}
}

// A link leads to its peer while it is there, and the index of links holds no more than these.
func TestLinksAreFoundWhileTheyAre(t *testing.T) {
	r := newRig(t)
	h := r.ready(5)
	if r.links.ByLink(5) != h || r.links.ByLink(6) != 0 || r.links.ByLink(0) != 0 || r.links.rows.byLink.Len() != 1 {
		t.Fatalf("link 5 leads to %d, of %d links", r.links.ByLink(5), r.links.rows.byLink.Len())
	}
	r.do(func(v *env.Env) { r.links.OnLinkLost(v, 6) })
	r.wantState(h, Ready)
	r.do(func(v *env.Env) { r.links.OnLinkLost(v, 5) })
	r.wantState(h, Backoff)
	if r.links.ByLink(5) != 0 || r.links.rows.byLink.Len() != 0 {
		t.Fatalf("a link that was lost leads to %d, of %d links", r.links.ByLink(5), r.links.rows.byLink.Len())
	}
}

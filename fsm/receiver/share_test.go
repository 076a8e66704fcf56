package receiver

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/protocol"
)

// A peer that asks without end for pages that are not there leaves as many places to wait at as it has: who comes then waits, and is
// served as pages become free.
func TestNobodyWaitsAtMoreThanItLeaves(t *testing.T) {
	r := newRig(t, nil)
	greedy, honest := r.guest(1), r.guest(2)
	r.wantGranted(r.ask(greedy, numbered(0, pagesMax), nil), pagesMax)
	waiting := 0
	for i := range 2 * r.r.asks.Max() {
		if _, code, answered := r.granted(r.ask(greedy, numbered(16+i, 1), nil)); !answered {
			waiting++
		} else if code != effects.TooMany {
			t.Fatalf("refused as %v", code)
		}
	}
	if most := r.r.asks.Max() / 2; waiting != most {
		t.Fatalf("%d requests of one peer wait; want %d", waiting, most)
	}
	mine := r.ask(honest, keysOf("a"), nil)
	r.wantWaits(mine)
	r.advance(allocTimeout / 2)
	r.land(r.grants[0], r.grants[0].Pages)
	r.release(r.get(0, numbered(0, pagesMax)))
	r.wantGranted(mine, 1)
	r.advance(allocTimeout)
	if w := &r.r.waiting; w.Of(1) != 0 || w.Of(2) != 0 {
		t.Errorf("%d and %d places are taken when nobody waits", w.Of(1), w.Of(2))
	}
}

// A peer that claims what is here for one request after the other has its share of claims; a chunk that another's put lands is
// kept for its request all the same, and dedup goes on for that one.
func TestWhatLandsIsKeptWhoeverClaims(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ClaimsMax = 8 })
	greedy, honest := r.guest(1), r.guest(2)
	named := func(who effects.Incarnation, request string, list [][]byte) effects.Request {
		return r.ask(who, list, func(m *protocol.AllocRequest) { m.Ext.Request = []byte(request) })
	}
	r.ask(greedy, keysOf("a"), nil)
	r.land(r.grants[0], r.grants[0].Pages)
	sent := func(q effects.Request) bool { return len(r.replies[q].AlreadySent) == 1 }
	promised := 0
	for i := range 6 {
		if sent(named(greedy, fmt.Sprint(i), keysOf("a"))) {
			promised++
		}
	}
	if promised != 4 {
		t.Errorf("one peer's claims beyond the first are %d of 8; want 4", promised)
	}
	for i := range 2 {
		if !sent(named(honest, fmt.Sprint("h", i), keysOf("a"))) {
			t.Errorf("claim %d of another peer finds no room", i)
		}
	}
	named(honest, "mine", keysOf("b"))
	g := r.grants[len(r.grants)-1]
	r.land(g, g.Pages)
	r.tickets++
	mine := r.tickets
	r.do(func(v *env.Env) { r.r.OnGet(v, mine, &Get{Request: []byte("mine"), Keys: keysOf("b")}) })
	if d := r.outcomes[mine]; d.Code != effects.OK || len(d.Pages) != 1 {
		t.Errorf("what landed was not kept: %+v", d)
	}
}

// What landed of a peer counts in its share while another one is present, until it has left. A peer that is alone may
// fill the pool, and one that was not heard of for as long as a chunk is kept, or is gone, keeps nothing from it.
func TestWhatLandsCountsInTheShare(t *testing.T) {
	const half = pagesMax / 2
	fill := func(r *rig, who effects.Incarnation, from int) {
		r.t.Helper()
		r.wantGranted(r.ask(who, numbered(from, half), nil), half)
		g := r.grants[len(r.grants)-1]
		r.land(g, g.Pages)
	}
	alone := func() (*rig, effects.Incarnation) {
		r := newShared(t, half, nil)
		who := r.guest(1)
		fill(r, who, 0)
		return r, who
	}

	r, greedy := alone()
	fill(r, greedy, half)
	if r.pool.Free() != 0 || r.pool.Landed(1) != pagesMax {
		t.Errorf("%d pages are free, %d landed: one that is alone may have them all", r.pool.Free(), r.pool.Landed(1))
	}

	r, greedy = alone()
	honest := r.guest(2)
	more := r.ask(greedy, numbered(half, 1), nil)
	r.wantWaits(more)
	fill(r, honest, 10)
	if r.pool.Landed(2) != half {
		t.Errorf("%d pages landed for the other peer", r.pool.Landed(2))
	}
	r.release(r.get(0, numbered(0, half))) // It is taken, and gives the share back.
	r.wantGranted(more, 1)

	r, greedy = alone()
	r.guest(2)
	more = r.ask(greedy, numbered(half, 1), nil)
	r.wantWaits(more)
	r.do(func(v *env.Env) { r.links.OnGuestLost(v, effects.Incarnation{0xA0, 2}) })
	r.wantGranted(more, 1)

	r = newShared(t, half, func(c *Config) { c.ClaimTTL = 10 * lease })
	greedy = r.guest(1)
	r.guest(2)
	r.advance(9 * lease)
	fill(r, greedy, 0)
	more = r.ask(greedy, numbered(half, 1), nil)
	r.wantWaits(more)
	r.advance(lease + 1) // By then that one has lapsed, but what landed is kept.
	fill(r, greedy, half)
}

// On leased planes a peer's word ends a grant whose revocation is under way. The driver is still at that, so it counts
// as a grant: no peer has more Revokes under way than the driver was told to expect.
func TestRevokesUnderWayAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Leased, c.GrantsMax = true, 2 }) // A peer may have one of two.
	who, other := r.guest(1), r.guest(2)
	r.wantGranted(r.ask(who, numbered(0, 1), nil), 1)
	r.advance(lease)
	r.do(func(v *env.Env) { r.r.abort(v, who, r.grants[0].ID) })
	if len(r.revokes) != 1 || r.pool.Free() != pagesMax {
		t.Fatalf("%d Revokes, %d pages free", len(r.revokes), r.pool.Free())
	}
	more := r.ask(who, numbered(1, 1), nil)
	r.wantWaits(more)
	r.wantGranted(r.ask(other, numbered(2, 1), nil), 1)
	r.revoked()
	r.wantGranted(more, 1)
}

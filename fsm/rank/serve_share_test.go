package rank

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// A peer that asks without end for pages that are not there leaves as many places to wait at as it has: who comes then
// waits, and is served as pages become free.
func TestPendingRowsAreShared(t *testing.T) {
	r := newServing(t, nil)
	greedy, honest := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(greedy, numberedKeys(0, pagesMax), nil), pagesMax)
	waiting := 0
	for i := range 2 * int(r.rank.cfg.WaitersMax) {
		if _, code, answered := r.grantedPages(r.requestPages(greedy, numberedKeys(16+i, 1), nil)); !answered {
			waiting++
		} else if code != effects.TooMany {
			t.Fatalf("refused as %v", code)
		}
	}
	if most := int(r.rank.cfg.WaitersMax) / 2; waiting != most {
		t.Fatalf("%d requests of one peer wait; want %d", waiting, most)
	}
	mine := r.requestPages(honest, keysOf("a"), nil)
	r.wantWaits(mine)
	r.advance(allocTimeout / 2)
	r.landPages(r.grants[0], r.grants[0].Pages)
	r.release(r.get(0, numberedKeys(0, pagesMax)))
	r.wantGranted(mine, 1)
	r.advance(allocTimeout)
	if w := &r.rooms.Pending; w.RowsOf(1) != 0 || w.RowsOf(2) != 0 {
		t.Errorf("%d and %d places are taken when nobody waits", w.RowsOf(1), w.RowsOf(2))
	}
}

// A peer that claims what is here for one request after the other has its share of claims; a chunk that another's put
// lands is kept for its request all the same, and dedup goes on for that one.
func TestLandedChunkIsKeptWithoutClaimShare(t *testing.T) {
	r := newServing(t, func(c *Config) { c.ClaimsMax = 8 })
	greedy, honest := r.connectPeer(1), r.connectPeer(2)
	named := func(who effects.Incarnation, request string, list [][]byte) effects.Request {
		return r.requestPages(who, list, func(m *protocol.AllocRequest) { m.Ext.Request = []byte(request) })
	}
	r.requestPages(greedy, keysOf("a"), nil)
	r.landPages(r.grants[0], r.grants[0].Pages)
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
	r.landPages(g, g.Pages)
	mine := r.command(&engine.Get{Request: []byte("mine"), Keys: keysOf("b")})
	if d := r.outcomes[mine]; d.Code != effects.OK || len(d.Pages) != 1 {
		t.Errorf("what landed was not kept: %+v", d)
	}
}

// What landed of a peer counts in its share while another one is present, until it has left. A peer that is alone may
// fill the pool, and one that was not heard of for as long as a chunk is kept, or is gone, keeps nothing from it.
func TestLandedPagesCountInShare(t *testing.T) {
	const half = pagesMax / 2
	fill := func(r *serving, who effects.Incarnation, from int) {
		r.t.Helper()
		r.wantGranted(r.requestPages(who, numberedKeys(from, half), nil), half)
		g := r.grants[len(r.grants)-1]
		r.landPages(g, g.Pages)
	}
	alone := func() (*serving, effects.Incarnation) {
		r := newShared(t, half, nil)
		who := r.connectPeer(1)
		fill(r, who, 0)
		return r, who
	}

	r, greedy := alone()
	fill(r, greedy, half)
	if r.pool.FreePages() != 0 || r.pool.LandedPages(1) != pagesMax {
		t.Errorf("%d pages are free, %d landed: one that is alone may have them all", r.pool.FreePages(), r.pool.LandedPages(1))
	}

	r, greedy = alone()
	honest := r.connectPeer(2)
	more := r.requestPages(greedy, numberedKeys(half, 1), nil)
	r.wantWaits(more)
	fill(r, honest, 10)
	if r.pool.LandedPages(2) != half {
		t.Errorf("%d pages landed for the other peer", r.pool.LandedPages(2))
	}
	r.release(r.get(0, numberedKeys(0, half))) // It is taken, and gives the share back.
	r.wantGranted(more, 1)

	r, greedy = alone()
	r.connectPeer(2)
	more = r.requestPages(greedy, numberedKeys(half, 1), nil)
	r.wantWaits(more)
	r.step(&effects.LinkLost{Peer: effects.Incarnation{0xA0, 2}})
	r.wantGranted(more, 1)

	r = newShared(t, half, func(c *Config) { c.ClaimTTL = 10 * leaseTTL })
	greedy = r.connectPeer(1)
	r.connectPeer(2)
	r.advance(9 * leaseTTL)
	fill(r, greedy, 0)
	more = r.requestPages(greedy, numberedKeys(half, 1), nil)
	r.wantWaits(more)
	r.advance(leaseTTL + 1) // By then that one has lapsed, but what landed is kept.
	fill(r, greedy, half)
}

// A host that shakes hands under one name after another, and fills pages under each, has the share of an origin while
// another host is present, and no more: pages that landed for its former names count (hole S4). The refusal names the key.
func TestInventedNamesHaveAShare(t *testing.T) {
	const liar, honest = 7, 9
	r := newShared(t, pagesMax/4, func(c *Config) { c.PeersMax, c.OriginSharePct = 2, 50 })
	r.isRenamed = true
	r.connectFrom(100, honest)
	landed := 0
	for name := range byte(2) {
		who := r.connectFrom(1+name, liar) // It takes the row of the name before.
		r.wantGranted(r.requestPages(who, numberedKeys(landed, pagesMax/4), nil), pagesMax/4)
		g := r.grants[len(r.grants)-1]
		r.landPages(g, g.Pages)
		landed += pagesMax / 4
	}
	who := r.connectFrom(3, liar)
	more := r.requestPages(who, numberedKeys(landed, 1), nil)
	r.wantWaits(more)
	r.wantGranted(r.requestPages(effects.Incarnation{0xA0, 100}, numberedKeys(100, pagesMax/4), nil), pagesMax/4)
	r.advance(allocTimeout)
	if reason := string(r.replies[more].Ext.Reason); !strings.HasPrefix(reason, "origin_share_pct is ") {
		t.Errorf("the refusal says %q", reason)
	}
	more = r.requestPages(who, numberedKeys(landed, 1), nil)
	r.wantWaits(more)
	r.release(r.get(0, numberedKeys(0, 1))) // It is taken, and gives the share back.
	r.wantGranted(more, 1)
}

// A tenant with its share of the pages waits while another tenant wants some, from whichever peer its chunks come. The
// requests of other tenants behind it are served, those of the same tenant are not, and the refusal names the key.
func TestTenantsHaveShares(t *testing.T) {
	r := newShared(t, pagesMax, func(c *Config) { c.Pages, c.TenantSharePct = 8, 50 })
	const half = 4
	of := func(tenant effects.Tenant, from, n int) (list [][]byte) {
		for _, k := range numberedKeys(from, n) {
			list = append(list, protocol.AppendTenant(k, uint64(tenant)))
		}
		return list
	}
	first, second := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(first, of(tenantA, 0, half-1), nil), half-1)
	r.wantGranted(r.requestPages(second, of(tenantB, 0, 1), nil), 1)
	r.wantGranted(r.requestPages(second, of(tenantA, half-1, 1), nil), 1)
	large := r.requestPages(first, of(tenantA, half, 2), nil)
	small := r.requestPages(first, of(tenantA, half+2, 1), nil)
	r.wantWaits(large)
	r.wantWaits(small)
	r.wantGranted(r.requestPages(first, of(tenantB, 1, 1), nil), 1) // It is behind requests that are held back.
	g := r.grants[0]
	r.landPages(g, g.Pages)
	r.wantWaits(large)
	r.release(r.get(0, of(tenantA, 0, 1))) // Its share has one page left, and the first request needs two.
	r.wantWaits(large)
	r.wantWaits(small)
	r.release(r.get(0, of(tenantA, 1, 1)))
	r.wantGranted(large, 2)
	r.wantWaits(small)
	r.advance(allocTimeout)
	if reason := string(r.replies[small].Ext.Reason); !strings.HasPrefix(reason, "tenant_share_pct is ") {
		t.Errorf("the refusal says %q", reason)
	}
}

// The share of a tenant holds for what the engine reserves, and a reservation for another tenant is not kept waiting.
func TestReservationsHaveTenants(t *testing.T) {
	r := newShared(t, pagesMax, func(c *Config) {
		c.Role, c.Pages, c.TenantSharePct, c.EngineSharePct, c.Retention = RoleBoth, 8, 50, 100, store.Cache
	})
	const half = 4
	reserve := func(tenant effects.Tenant, n uint32) effects.Ticket {
		return r.command(&engine.Reserve{Count: n, Tenant: tenant})
	}
	held := func(x effects.Ticket) int { return len(r.outcomes[x].Pages) }
	first, other := reserve(tenantA, half), reserve(tenantB, 1)
	more, next := reserve(tenantA, 1), reserve(tenantB, 1)
	if held(first) != half || held(other) != 1 || held(more) != 0 || held(next) != 1 {
		t.Fatalf("the reservations have %d, %d, %d and %d pages", held(first), held(other), held(more), held(next))
	}
	r.command(&engine.Release{Reserved: first})
	if held(more) != 1 {
		t.Error("a reservation waits although its tenant has no pages")
	}
}

// On leased planes a peer's word ends a grant whose revocation is under way. The driver is still at that, so it counts
// as a grant: no peer has more Revokes under way than the driver was told to expect.
func TestRevokesUnderWayAreBounded(t *testing.T) {
	r := newServing(t, func(c *Config) { c.Leased, c.GrantsMax = true, 2 }) // A peer may have one of two.
	who, other := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(who, numberedKeys(0, 1), nil), 1)
	r.advance(leaseTTL)
	r.commitAndAbort(who, nil, []effects.GrantID{r.grants[0].ID})
	if len(r.revokes) != 1 || r.pool.FreePages() != pagesMax {
		t.Fatalf("%d Revokes, %d pages free", len(r.revokes), r.pool.FreePages())
	}
	more := r.requestPages(who, numberedKeys(1, 1), nil)
	r.wantWaits(more)
	r.wantGranted(r.requestPages(other, numberedKeys(2, 1), nil), 1)
	r.confirmRevokes()
	r.wantGranted(more, 1)
}

// What lands counts for one peer, once, and is given back as it leaves, whoever waits for it or claims it meanwhile.
func TestLandedPagesCountOnce(t *testing.T) {
	want := func(r *serving, when string, of1, of2 uint32) {
		t.Helper()
		if is1, is2 := r.pool.LandedPages(1), r.pool.LandedPages(2); is1 != of1 || is2 != of2 {
			t.Errorf("%s: %d and %d pages count; want %d and %d", when, is1, is2, of1, of2)
		}
	}
	r := newServing(t, nil)
	one := r.connectPeer(1)
	waits := r.get(leaseTTL, keysOf("a")) // A Get waits for it already.
	r.requestPages(one, keysOf("a"), nil)
	r.landPages(r.grants[0], r.grants[0].Pages)
	want(r, "a Get that waited has it", 1, 0)
	r.release(waits)
	want(r, "it was released", 0, 0)

	r = newServing(t, nil) // Two land one chunk for one request, whose claim runs since the first.
	one, two := r.connectPeer(1), r.connectPeer(2)
	r.requestPages(one, keysOf("a"), nil)
	r.requestPages(two, keysOf("a"), nil)
	r.landPages(r.grants[0], r.grants[0].Pages)
	r.landPages(r.grants[1], r.grants[1].Pages)
	want(r, "the second came too late", 1, 0)
	first := r.get(0, keysOf("a"))
	r.advance(2 * r.rank.cfg.ClaimTTL) // Every claim is over, and the Get still has it.
	want(r, "who has it took its time", 1, 0)
	r.release(first)
	want(r, "both requests had it", 0, 0)

	r = newServing(t, nil) // Nobody comes for it.
	r.requestPages(r.connectPeer(1), keysOf("a"), nil)
	r.landPages(r.grants[0], r.grants[0].Pages)
	r.advance(2 * r.rank.cfg.ClaimTTL)
	want(r, "its claim is over", 0, 0)

	// A commit lands what was committed already, and an abort nothing.
	r = newServing(t, func(c *Config) { c.Leased = true })
	one = r.connectPeer(1)
	r.requestPages(one, keysOf("a", "b"), nil)
	for range 2 {
		r.commit(one, r.grants[0].ID)
		r.commitAndAbort(one, nil, []effects.GrantID{r.grants[0].ID})
		want(r, "committed and aborted", 2, 0)
	}

	r = newServing(t, func(c *Config) { // What is trusted counts as granted until its grant ends, then as landed.
		c.Leased, c.Bearer, c.TrustUncommitted = true, true, true
	})
	plain := r.rank.links.CountClasses() - r.rank.links.VanillasMax()
	r.requestPages(effects.Incarnation{}, keysOf("a"), func(m *protocol.AllocRequest) { m.RequestID = []byte("r") })
	got := r.get(0, keysOf("a"))
	if granted, landed := r.rank.pools.ClassUse(plain), r.pool.LandedPages(plain); granted != 1 || landed != 0 {
		t.Errorf("trusted: %d pages count as granted and %d as landed", granted, landed)
	}
	r.advance(leaseTTL + r.rank.cfg.Residual + 1)
	if granted, landed := r.rank.pools.ClassUse(plain), r.pool.LandedPages(plain); granted != 0 || landed != 1 {
		t.Errorf("its grant is over: %d pages count as granted and %d as landed", granted, landed)
	}
	r.release(got)
	if r.pool.LandedPages(plain) != 0 || r.pool.FreePages() != pagesMax {
		t.Errorf("%d pages count, %d are free", r.pool.LandedPages(plain), r.pool.FreePages())
	}
}

// Messages of one peer that wait have no more bytes than they leave, however few they are: who comes then waits too.
func TestPendingBytesAreShared(t *testing.T) {
	const room = 4000
	r := newServing(t, func(c *Config) { c.WaitersMax, c.WaitingBytes = 64, room })
	greedy, honest := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(greedy, numberedKeys(0, pagesMax), nil), pagesMax)
	var waiting []effects.Request
	for i := range 64 {
		q := r.requestPages(greedy, numberedKeys(16+pagesMax*i, pagesMax), nil)
		if _, code, answered := r.grantedPages(q); !answered {
			waiting = append(waiting, q)
		} else if why := string(r.replies[q].Ext.Reason); code != effects.TooMany || !strings.Contains(why, "waiting_bytes") {
			t.Fatalf("refused as %v: %s", code, why)
		}
	}
	of := r.rooms.Pending.BytesOf(1)
	if len(waiting) < 2 || of > room/2 || of < room/4 || of < len(waiting)*pagesMax*len(key("10")) {
		t.Fatalf("%d requests of one peer wait, with %d bytes of %d", len(waiting), of, room)
	}
	mine := r.requestPages(honest, keysOf("a"), nil)
	r.wantWaits(mine)
	r.advance(allocTimeout)
	for _, q := range append(waiting, mine) {
		r.wantRefused(q, effects.NoMemory)
	}
	if a, b := r.rooms.Pending.BytesOf(1), r.rooms.Pending.BytesOf(2); a+b != 0 {
		t.Errorf("%d and %d bytes are taken when nobody waits", a, b)
	}
}

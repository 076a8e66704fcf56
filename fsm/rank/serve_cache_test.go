package rank

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

// newCache is a room that keeps what nobody expects any more while there is room, of a pool that its peer has filled
// with a, b, c and d. All of them were read, in this order.
func newCache(t fatal, share uint32) (*serving, effects.Incarnation) {
	r := newShared(t, share, func(c *Config) { c.Retention = store.Cache })
	who := r.connectPeer(1)
	for _, name := range []string{"a", "b", "c", "d"} {
		q := r.requestPages(who, keysOf(name), nil)
		r.wantGranted(q, 1)
		g := r.grants[len(r.grants)-1]
		r.landPages(g, g.Pages)
		r.release(r.get(0, keysOf(name)))
	}
	if r.rooms.Store.EvictablePages(r.pool) != pagesMax || r.pool.FreePages() != 0 {
		r.t.Fatalf("%d pages are the cache's, %d are free", r.rooms.Store.EvictablePages(r.pool), r.pool.FreePages())
	}
	return r, who
}

// readyNames says which of the chunks are here. It looks, and uses none.
func (r *serving) readyNames(names ...string) (found string) {
	for _, name := range names {
		k := key(name)
		if _, ok := r.rooms.Store.ReadyPage(r.rooms.Store.Find(r.rooms.Store.HashKey(k), k)); ok {
			found += name
		}
	}
	return found
}

func (r *serving) wantReady(want string) {
	r.t.Helper()
	if got := r.readyNames("a", "b", "c", "d", "e", "f"); got != want {
		r.t.Fatalf("%s are here; want %s", got, want)
	}
}

// What was used longest ago goes first, as many as are needed; who reads a chunk uses it.
func TestCacheEvictsOldest(t *testing.T) {
	r, who := newCache(t, pagesMax)
	r.release(r.get(0, keysOf("a")))
	r.wantGranted(r.requestPages(who, keysOf("e", "f"), nil), 2)
	r.wantReady("ad")
	if d := r.outcomes[r.get(0, keysOf("b"))]; d.Code != effects.NotFound || d.Hits != 0 {
		t.Errorf("what was given up is found: %+v", d)
	}
}

// A chunk that is read, or kept for a request, does not go; a batch that finds one here is promised it, and does not
// give it up for its others.
func TestCacheKeepsClaimedChunks(t *testing.T) {
	r, who := newCache(t, pagesMax)
	got := r.get(0, keysOf("b"))
	q := r.requestPages(who, keysOf("a", "e", "f"), nil)
	r.wantGranted(q, 2)
	if m := r.replies[q]; len(m.AlreadySent) != 1 || m.AlreadySent[0] != 0 {
		t.Errorf("already here: %v", m.AlreadySent)
	}
	r.wantReady("ab")
	r.wantWaits(r.requestPages(who, keysOf("0"), nil))
	r.release(got)
	r.wantReady("a") // b was the cache's again, and the one who waited had its page.
	if d := r.outcomes[r.get(0, keysOf("a"))]; d.Code != effects.OK {
		t.Errorf("what was promised is not here: %+v", d)
	}
}

// A batch that cannot be served all the same gives nothing up: one that needs more than there is, one whose peer has
// its share.
func TestCacheEvictsNothingInVain(t *testing.T) {
	r, who := newCache(t, pagesMax)
	a, b := r.get(0, keysOf("a")), r.get(0, keysOf("b"))
	q := r.requestPages(who, keysOf("e", "f", "0", "1"), nil)
	r.wantWaits(q)
	r.release(a)
	r.wantWaits(q)
	r.wantReady("abcd")
	r.release(b)
	r.wantGranted(q, 4) // There was room when nobody read any more, though no page became free.
	r.wantReady("")

	r, who = newCache(t, pagesMax)
	r.get(0, keysOf("c"))
	r.wantWaits(r.requestPages(who, keysOf("a", "b", "e", "f"), nil)) // What it finds here would have to make room for it.
	r.wantReady("abcd")

	r, who = newCache(t, 2)
	r.wantGranted(r.requestPages(who, keysOf("e", "f"), nil), 2)
	r.wantReady("cd")
	r.wantWaits(r.requestPages(who, keysOf("0"), nil))
	r.wantReady("cd")
}

// A rank that drains keeps nothing, and what lands or is released afterwards goes as well.
func TestDrainEmptiesCache(t *testing.T) {
	r, _ := newCache(t, pagesMax)
	got := r.get(0, keysOf("a"))
	r.command(&Drain{})
	r.wantReady("a")
	r.release(got)
	r.wantReady("")
	if r.pool.FreePages() != pagesMax || r.rooms.Store.CountEntries() != 0 {
		t.Errorf("%d pages free of %d, %d entries", r.pool.FreePages(), pagesMax, r.rooms.Store.CountEntries())
	}
}

// What lapses is told, and stays in a cache; who comes for it then finds it.
func TestLapsedChunksStayInACache(t *testing.T) {
	r, who := newCache(t, pagesMax)
	r.wantGranted(r.requestPages(who, keysOf("e"), nil), 1)
	g := r.grants[len(r.grants)-1]
	r.landPages(g, g.Pages)
	r.advance(200 * effects.Second)
	if d := r.outcomes[r.get(0, keysOf("e"))]; d.Code != effects.OK {
		t.Errorf("a chunk that lapsed and is here is not found: %+v", d)
	}
}

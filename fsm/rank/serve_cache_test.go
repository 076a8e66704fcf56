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
	who := r.guest(1)
	for _, name := range []string{"a", "b", "c", "d"} {
		q := r.ask(who, keysOf(name), nil)
		r.wantGranted(q, 1)
		g := r.grants[len(r.grants)-1]
		r.land(g, g.Pages)
		r.release(r.get(0, keysOf(name)))
	}
	if r.rooms.Store.Spare(r.pool) != pagesMax || r.pool.Free() != 0 {
		r.t.Fatalf("%d pages are the cache's, %d are free", r.rooms.Store.Spare(r.pool), r.pool.Free())
	}
	return r, who
}

// there says which of the chunks are here. It looks, and uses none.
func (r *serving) there(names ...string) (are string) {
	for _, name := range names {
		k := key(name)
		if _, ok := r.rooms.Store.Ready(r.rooms.Store.Find(r.rooms.Store.Hash(k), k)); ok {
			are += name
		}
	}
	return are
}

func (r *serving) wantThere(want string) {
	r.t.Helper()
	if got := r.there("a", "b", "c", "d", "e", "f"); got != want {
		r.t.Fatalf("%s are here; want %s", got, want)
	}
}

// What was used longest ago goes first, as many as are needed; who reads a chunk uses it.
func TestCacheGivesUpTheOldest(t *testing.T) {
	r, who := newCache(t, pagesMax)
	r.release(r.get(0, keysOf("a")))
	r.wantGranted(r.ask(who, keysOf("e", "f"), nil), 2)
	r.wantThere("ad")
	if d := r.outcomes[r.get(0, keysOf("b"))]; d.Code != effects.NotFound || d.Hits != 0 {
		t.Errorf("what was given up is found: %+v", d)
	}
}

// A chunk that is read, or kept for a request, does not go; a batch that finds one here is promised it, and does not
// give it up for its others.
func TestCacheGivesUpNothingThatIsWanted(t *testing.T) {
	r, who := newCache(t, pagesMax)
	got := r.get(0, keysOf("b"))
	q := r.ask(who, keysOf("a", "e", "f"), nil)
	r.wantGranted(q, 2)
	if m := r.replies[q]; len(m.AlreadySent) != 1 || m.AlreadySent[0] != 0 {
		t.Errorf("already here: %v", m.AlreadySent)
	}
	r.wantThere("ab")
	r.wantWaits(r.ask(who, keysOf("0"), nil))
	r.release(got)
	r.wantThere("a") // b was the cache's again, and the one who waited had its page.
	if d := r.outcomes[r.get(0, keysOf("a"))]; d.Code != effects.OK {
		t.Errorf("what was promised is not here: %+v", d)
	}
}

// A batch that cannot be served all the same gives nothing up: one that needs more than there is, one whose peer has
// its share.
func TestCacheGivesUpNothingInVain(t *testing.T) {
	r, who := newCache(t, pagesMax)
	a, b := r.get(0, keysOf("a")), r.get(0, keysOf("b"))
	q := r.ask(who, keysOf("e", "f", "0", "1"), nil)
	r.wantWaits(q)
	r.release(a)
	r.wantWaits(q)
	r.wantThere("abcd")
	r.release(b)
	r.wantGranted(q, 4) // There was room when nobody read any more, though no page became free.
	r.wantThere("")

	r, who = newCache(t, pagesMax)
	r.get(0, keysOf("c"))
	r.wantWaits(r.ask(who, keysOf("a", "b", "e", "f"), nil)) // What it finds here would have to make room for it.
	r.wantThere("abcd")

	r, who = newCache(t, 2)
	r.wantGranted(r.ask(who, keysOf("e", "f"), nil), 2)
	r.wantThere("cd")
	r.wantWaits(r.ask(who, keysOf("0"), nil))
	r.wantThere("cd")
}

// A rank that drains keeps nothing, and what lands or is released afterwards goes as well.
func TestDrainLetsTheCacheGo(t *testing.T) {
	r, _ := newCache(t, pagesMax)
	got := r.get(0, keysOf("a"))
	r.command(&Drain{})
	r.wantThere("a")
	r.release(got)
	r.wantThere("")
	if r.pool.Free() != pagesMax || r.rooms.Store.Entries() != 0 {
		t.Errorf("%d pages free of %d, %d entries", r.pool.Free(), pagesMax, r.rooms.Store.Entries())
	}
}

// What lapses is told, and stays in a cache; who comes for it then finds it.
func TestLapsedChunksStayInACache(t *testing.T) {
	r, who := newCache(t, pagesMax)
	r.wantGranted(r.ask(who, keysOf("e"), nil), 1)
	g := r.grants[len(r.grants)-1]
	r.land(g, g.Pages)
	r.advance(200 * effects.Second)
	if d := r.outcomes[r.get(0, keysOf("e"))]; d.Code != effects.OK {
		t.Errorf("a chunk that lapsed and is here is not found: %+v", d)
	}
}

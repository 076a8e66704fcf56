package rank

import (
	"testing"
)

// A commit that is said again is answered as before, however many grants of other peers ended in between: its answer
// was lost, and its sender would call a put lost that has landed.
func TestCommitsOfOthersMakeNoneForgotten(t *testing.T) {
	r := newServing(t, func(c *Config) { c.Leased = true })
	one, two := r.guest(1), r.guest(2)
	r.wantGranted(r.ask(one, keysOf("a"), nil), 1)
	mine := r.grants[0].ID
	if !r.commit(one, mine) {
		t.Fatal("a commit is refused")
	}
	for i := range 100 {
		r.wantGranted(r.ask(two, numbered(16+i, 1), nil), 1)
		if !r.commit(two, r.grants[len(r.grants)-1].ID) {
			t.Fatal("a commit is refused")
		}
		r.release(r.get(0, numbered(16+i, 1)))
	}
	if !r.commit(one, mine) || r.commit(two, mine) {
		t.Error("said again it is answered otherwise, or somebody else's is believed")
	}
	r.advance(r.rank.cfg.ClaimTTL + 1)
	was := r.rooms.Landings.Remembered()
	for i := range was { // Some go as others come, more than come.
		r.wantGranted(r.ask(two, numbered(1000+i, 1), nil), 1)
		if !r.commit(two, r.grants[len(r.grants)-1].ID) {
			t.Fatal("a commit is refused")
		}
		r.release(r.get(0, numbered(1000+i, 1)))
	}
	if r.commit(one, mine) || r.rooms.Landings.Remembered() > was {
		t.Errorf("%d commits are remembered, and the first one is, for longer than what landed is kept",
			r.rooms.Landings.Remembered())
	}
}

package rank

import (
	"testing"
)

// A commit that is said again is answered as before, however many grants of other peers ended in between: its answer
// was lost, and its sender would call a put lost that has landed.
func TestCommitRecordsSurviveOtherPeers(t *testing.T) {
	r := newServing(t, func(c *Config) { c.Leased = true })
	one, two := r.connectPeer(1), r.connectPeer(2)
	r.wantGranted(r.requestPages(one, keysOf("a"), nil), 1)
	mine := r.grants[0].ID
	if !r.commit(one, mine) {
		t.Fatal("a commit is refused")
	}
	for i := range 100 {
		r.wantGranted(r.requestPages(two, numberedKeys(16+i, 1), nil), 1)
		if !r.commit(two, r.grants[len(r.grants)-1].ID) {
			t.Fatal("a commit is refused")
		}
		r.release(r.get(0, numberedKeys(16+i, 1)))
	}
	if !r.commit(one, mine) || r.commit(two, mine) {
		t.Error("said again it is answered otherwise, or somebody else's is believed")
	}
	r.advance(r.rank.cfg.ClaimTTL + 1)
	was := r.rooms.Landings.CountCommitRecords()
	for i := range was { // Some go as others come, more than come.
		r.wantGranted(r.requestPages(two, numberedKeys(1000+i, 1), nil), 1)
		if !r.commit(two, r.grants[len(r.grants)-1].ID) {
			t.Fatal("a commit is refused")
		}
		r.release(r.get(0, numberedKeys(1000+i, 1)))
	}
	if r.commit(one, mine) || r.rooms.Landings.CountCommitRecords() > was {
		t.Errorf("%d commits are remembered, and the first one is, for longer than what landed is kept",
			r.rooms.Landings.CountCommitRecords())
	}
}

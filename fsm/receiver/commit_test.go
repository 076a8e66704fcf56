package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
)

// A commit that is said again is answered as before, however many grants of other peers ended in between: its answer
// was lost, and its sender would call a put lost that has landed.
func TestCommitsOfOthersMakeNoneForgotten(t *testing.T) {
	r := newRig(t, func(c *flow.RoomsConfig) { c.Leased = true })
	commit := func(who effects.Incarnation, id effects.GrantID) (ok bool) {
		r.do(func(v *env.Env) { ok = r.r.push.Commit(v, &r.r.Rooms, who, id) })
		return ok
	}
	one, two := r.guest(1), r.guest(2)
	r.wantGranted(r.ask(one, keysOf("a"), nil), 1)
	mine := r.grants[0].ID
	if !commit(one, mine) {
		t.Fatal("a commit is refused")
	}
	for i := range 100 {
		r.wantGranted(r.ask(two, numbered(16+i, 1), nil), 1)
		if !commit(two, r.grants[len(r.grants)-1].ID) {
			t.Fatal("a commit is refused")
		}
		r.release(r.get(0, numbered(16+i, 1)))
	}
	if !commit(one, mine) || commit(two, mine) {
		t.Error("said again it is answered otherwise, or somebody else's is believed")
	}
	r.advance(r.r.Cfg.ClaimTTL + 1)
	if commit(one, mine) || r.r.Landings.Remembered() != 0 {
		t.Errorf("%d commits are remembered for longer than what landed is kept", r.r.Landings.Remembered())
	}
}

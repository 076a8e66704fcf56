package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
)

// A tombstone that has to make room for others raises its class's floor to when its word was said: never lower.
func TestTombstonesMakeRoom(t *testing.T) {
	s := newTombstones(3, 1)
	for i := range 4 {
		s.add(tombstone{operation: uint64(i), attempt: 2, said: effects.Time(i + 5), over: 100})
	}
	if s.of[0].watermark != 5 || s.find(0, effects.Incarnation{}, 0, 1) != nil {
		t.Errorf("floor %d after the first one went", s.of[0].watermark)
	}
	if s.find(0, effects.Incarnation{}, 3, 2) == nil || s.find(0, effects.Incarnation{}, 3, 3) != nil {
		t.Error("a refusal speaks of the attempts up to its own")
	}
	if s.expire(101); s.rows.Len() != 0 || s.order.Len() != 0 || s.of[0].watermark != 5 || s.share.Of(0) != 0 {
		t.Errorf("%d left, floor %d, after their time", s.rows.Len(), s.of[0].watermark)
	}
	s.add(tombstone{operation: 9, done: true, said: 101, over: 102})
	if s.find(0, effects.Incarnation{}, 9, 1<<31) == nil || s.rows.Len() != 1 {
		t.Error("a done speaks of all attempts")
	}
}

// However many operations of one peer end, what is remembered of another's stays, and so does its floor.
func TestNobodysEndsMakeAnothersForgotten(t *testing.T) {
	const most, classes = 16, 5
	s := newTombstones(most, classes)
	who := func(class int) effects.Incarnation { return effects.Incarnation{byte(class)} }
	ends := func(class, n int, said effects.Time) {
		s.add(tombstone{class: class, peer: who(class), operation: uint64(n), done: true, said: said, over: 1e9})
	}
	for n := range 3 {
		ends(1, n, 10)
	}
	for n := range 1000 {
		ends(2, n, effects.Time(20+n))
	}
	for n := range 1000 {
		ends(3, n, 2000)
	}
	ends(4, 0, 3000) // It comes last, and has one whatever the others do.
	for class, n := range map[int]int{1: 3, 4: 1} {
		for n := range n {
			if s.find(0, who(class), uint64(n), 0) == nil {
				t.Errorf("end %d of class %d is forgotten", n, class)
			}
		}
		if s.of[class].watermark != ever {
			t.Errorf("the floor of class %d is %d", class, s.of[class].watermark)
		}
	}
	last := 1000 - s.of[2].count
	kept, gone := s.find(0, who(2), uint64(last), 0), s.find(0, who(2), uint64(last-1), 0)
	if kept == nil || gone != nil || s.of[2].watermark != effects.Time(20+last-1) {
		t.Errorf("%d are remembered, and the floor is %d", s.of[2].count, s.of[2].watermark)
	}
	if s.rows.Len() > most+classes {
		t.Errorf("%d tombstones", s.rows.Len())
	}

	s.left(2)
	if s.find(0, who(2), 999, 0) != nil || s.of[2].count != 0 || s.share.Of(2) != 0 || s.of[2].watermark != 1019 {
		t.Errorf("who left has %d, and its floor is %d", s.of[2].count, s.of[2].watermark)
	}
	s.left(4)
	if s.left(1); s.of[1].watermark != 3000 || s.of[3].watermark < 2000 {
		t.Errorf("who comes back in another class has a floor of %d", s.of[1].watermark)
	}
	s.expire(1e9 + 1)
	if s.rows.Len() != 0 || s.index.Len() != 0 {
		t.Errorf("%d are left, %d are indexed", s.rows.Len(), s.index.Len())
	}
}

// A commit that is said again is answered as before, however many grants of other peers ended in between: its answer
// was lost, and its sender would call a put lost that has landed.
func TestCommitsOfOthersMakeNoneForgotten(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Leased = true })
	commit := func(who effects.Incarnation, id effects.GrantID) (ok bool) {
		r.do(func(v *env.Env) { ok = r.r.push.commit(v, &r.r.rooms, who, id) })
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
	r.advance(r.r.cfg.ClaimTTL + 1)
	if commit(one, mine) || r.r.landings.commits.rows.Len() != 0 {
		t.Errorf("%d commits are remembered for longer than what landed is kept", r.r.landings.commits.rows.Len())
	}
}

package replies

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A tombstone that has to make room for others raises its class's floor to when its word was said: never lower.
func TestTombstonesMakeRoom(t *testing.T) {
	s := New(3, 1)
	for i := range 4 {
		s.Add(Record{Operation: uint64(i), Attempt: 2, SentAt: effects.Time(i + 5), Expires: 100})
	}
	if s.byClass[0].watermark != 5 || s.Find(effects.Incarnation{}, 0, 1) != nil {
		t.Errorf("floor %d after the first one went", s.byClass[0].watermark)
	}
	// A message of attempt 1 that was sent on a closed connection may arrive after the refusal of attempt 2.
	if s.Find(effects.Incarnation{}, 3, 1) == nil || s.Find(effects.Incarnation{}, 3, 2) == nil ||
		s.Find(effects.Incarnation{}, 3, 3) != nil {
		t.Error("a refusal speaks of the attempts up to its own")
	}
	if s.expireOldest(101); s.rows.Len() != 0 || s.order.Len() != 0 || s.byClass[0].watermark != 5 || s.share.CountOf(0) != 0 {
		t.Errorf("%d left, floor %d, after their time", s.rows.Len(), s.byClass[0].watermark)
	}
	s.Add(Record{Operation: 9, AllAttempts: true, SentAt: 101, Expires: 102})
	if s.Find(effects.Incarnation{}, 9, 1<<31) == nil || s.rows.Len() != 1 {
		t.Error("a done speaks of all attempts")
	}
}

// However many operations of one peer end, what is remembered of another's stays, and so does its floor.
func TestRecordsSurviveOtherPeers(t *testing.T) {
	const most, classes = 16, 5
	s := New(most, classes)
	peer := func(class int) effects.Incarnation { return effects.Incarnation{byte(class)} }
	addRecords := func(class, n int, said effects.Time) {
		s.Add(Record{Class: class, Peer: peer(class), Operation: uint64(n), AllAttempts: true, SentAt: said, Expires: 1e9})
	}
	for n := range 3 {
		addRecords(1, n, 10)
	}
	for n := range 1000 {
		addRecords(2, n, effects.Time(20+n))
	}
	for n := range 1000 {
		addRecords(3, n, 2000)
	}
	addRecords(4, 0, 3000) // It comes last, and has one whatever the others do.
	for class, n := range map[int]int{1: 3, 4: 1} {
		for n := range n {
			if s.Find(peer(class), uint64(n), 0) == nil {
				t.Errorf("end %d of class %d is forgotten", n, class)
			}
		}
		if s.byClass[class].watermark != MinTime {
			t.Errorf("the floor of class %d is %d", class, s.byClass[class].watermark)
		}
	}
	last := 1000 - s.byClass[2].count
	kept, gone := s.Find(peer(2), uint64(last), 0), s.Find(peer(2), uint64(last-1), 0)
	if kept == nil || gone != nil || s.byClass[2].watermark != effects.Time(20+last-1) {
		t.Errorf("%d are remembered, and the floor is %d", s.byClass[2].count, s.byClass[2].watermark)
	}
	if s.rows.Len() > most+classes {
		t.Errorf("%d tombstones", s.rows.Len())
	}

	s.DropClass(2)
	if s.Find(peer(2), 999, 0) != nil || s.byClass[2].count != 0 || s.share.CountOf(2) != 0 || s.byClass[2].watermark != 1019 {
		t.Errorf("who left has %d, and its floor is %d", s.byClass[2].count, s.byClass[2].watermark)
	}
	s.DropClass(4)
	if s.DropClass(1); s.byClass[1].watermark != 3000 || s.byClass[3].watermark < 2000 {
		t.Errorf("who comes back in another class has a floor of %d", s.byClass[1].watermark)
	}
	for left := s.rows.Len(); left > 0; left = s.rows.Len() {
		if s.expireOldest(1e9 + 1); left-s.rows.Len() > expirePerAdd || s.rows.Len() == left {
			t.Fatalf("%d of %d went at once", left-s.rows.Len(), left)
		}
	}
	if s.rows.Len() != 0 || s.index.Len() != 0 {
		t.Errorf("%d are left, %d are indexed", s.rows.Len(), s.index.Len())
	}
}

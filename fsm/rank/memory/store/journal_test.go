package store

import (
	"maps"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"pgregory.net/rapid"
)

// A follower knows what the store has by its journal, and by looking at all when that was too short.
type follower struct {
	keys  map[string]bool
	after uint64
}

// follow reads on, some changes at a time. Wherever it has read all, it knows what the store has.
func (f *follower) follow(t *rapid.T, s *storeModel) {
	most := rapid.IntRange(1, 8).Draw(t, "changes")
	changes, whole := s.store.ChangesAfter(f.after, make([]Change, 0, most))
	if lag := s.store.LastChange() - f.after; whole != (lag <= uint64(s.store.cfg.Journal)) {
		t.Fatalf("%d changes behind in a journal of %d: nothing is lost: %v", lag, s.store.cfg.Journal, whole)
	}
	if !whole {
		f.readAll(s)
		return
	}
	for _, c := range changes {
		if f.after++; c.Sequence != f.after || c.Hash != sameHash || c.Removed != f.keys[string(c.Key)] {
			t.Fatalf("%d is %+v, of %v", f.after, c, f.keys)
		}
		if f.keys[string(c.Key)] = !c.Removed; c.Removed {
			delete(f.keys, string(c.Key))
		}
	}
	if f.after == s.store.LastChange() {
		f.compare(t, s)
	}
}

func (f *follower) readAll(s *storeModel) {
	f.keys, f.after = map[string]bool{}, s.store.LastChange()
	for slot := range s.store.Slots() {
		if key, ready := s.store.ReadyAt(slot); ready {
			f.keys[string(key)] = true
		}
	}
}

func (f *follower) compare(t *rapid.T, s *storeModel) {
	var want []string
	for k, b := range s.model {
		if b.page.Generation != 0 {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(f.keys)); !slices.Equal(got, want) {
		t.Fatalf("told of %v, and the store has %v", got, want)
	}
}

// A store without a journal remembers nothing, and says so to who asks for more than nothing.
func TestNoJournal(t *testing.T) {
	s := &storeModel{store: New(four)}
	s.init(4)
	h := s.store.BeginFill(sameHash, []byte("a"))
	s.store.EndFill(h, s.pool.TakePages(1, nil)[0], true)
	if got, whole := s.store.ChangesAfter(0, make([]Change, 0, 4)); len(got) != 0 || !whole || s.store.LastChange() != 0 {
		t.Errorf("%d changes, %d the last", len(got), s.store.LastChange())
	}
	if _, whole := s.store.ChangesAfter(1, nil); whole {
		t.Error("it knows what never was")
	}
}

// Directories are told of no chunk that peers of another trust domain sent (S32).
func TestForeignChunksAreNotListed(t *testing.T) {
	cfg := four
	cfg.Journal = 4
	s := &storeModel{store: New(cfg)}
	s.init(4)
	for i, realm := range []effects.Realm{7, 0} {
		h := s.store.BeginFill(s.store.HashIn(realm, []byte("a")), []byte("a"))
		if realm != 0 {
			s.store.MarkForeign(h)
		}
		s.store.EndFill(h, s.pool.TakePages(1, nil)[0], true)
		listed := 0
		for slot := range s.store.Slots() {
			if _, ok := s.store.ReadyAt(slot); ok {
				listed++
			}
		}
		if listed != i || s.store.LastChange() != uint64(i) || s.store.CountEntries() != i+1 {
			t.Errorf("realm %d: %d chunks are listed, %d changes are recorded", realm, listed, s.store.LastChange())
		}
	}
}

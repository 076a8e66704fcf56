package tcp

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

type someBatch struct{ pairs []effects.Pair }

func (b *someBatch) Pairs() []effects.Pair { return b.pairs }

func TestQueueGivesEachPageOnce(t *testing.T) {
	q := newQueue[*someBatch]()
	a, b, c := &someBatch{make([]effects.Pair, 2)}, &someBatch{make([]effects.Pair, 1)},
		&someBatch{make([]effects.Pair, 3)}
	for _, batch := range []*someBatch{a, b, c} {
		q.add(batch)
	}
	want := func(batch *someBatch, pair int) {
		t.Helper()
		if got, i, ok := q.take(); !ok || got != batch || i != pair {
			t.Fatalf("took page %d of another batch than wanted, %v; want page %d", i, ok, pair)
		}
	}
	want(a, 0)
	want(a, 1)
	q.remove(b)
	want(c, 0)
	q.remove(c) // Its other pages go nowhere.
	q.remove(c)
	if len(q.jobs) != 0 {
		t.Fatalf("%d batches are left", len(q.jobs))
	}
	q.add(b)
	q.close()
	q.add(a)
	if _, _, ok := q.take(); ok || len(q.jobs) != 0 {
		t.Fatal("a closed queue gave a page, or kept a batch")
	}
}

package tcp

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

type someBatch struct{ pairs []effects.Pair }

func (b *someBatch) Pairs() []effects.Pair { return b.pairs }

func ofPages(count int, length uint32) *someBatch {
	b := &someBatch{make([]effects.Pair, count)}
	for i := range b.pairs {
		b.pairs[i].Local.Length = length
	}
	return b
}

// Runs are bounded in bytes and pages, and shrink towards the end of a batch, so that no stream takes everything that
// is left.
func TestRunsOfABatch(t *testing.T) {
	for _, c := range []struct {
		pages  int
		length uint32
		runs   []int
	}{
		{1, 1 << 30, []int{1}},
		{3, 1 << 20, []int{1, 1, 1}},
		{8, 16 << 10, []int{4, 4}},
		{128, 16 << 10, []int{32, 32, 32, 16, 8, 4, 4}},
		{600, 1, []int{256, 256, 88}},
	} {
		q, batch := newQueue[*someBatch](), ofPages(c.pages, c.length)
		q.addBatch(batch)
		next := 0
		for _, pages := range c.runs {
			if _, r, ok := q.takeRun(); !ok || r != (pageRun{next, pages}) {
				t.Errorf("%d pages of %d bytes: got %+v; want %d from %d on", c.pages, c.length, r, pages, next)
			}
			next += pages
		}
		if len(q.jobs) > 0 {
			t.Errorf("%d pages of %d bytes: something is left", c.pages, c.length)
		}
	}
}

func TestQueueGivesEachPageOnce(t *testing.T) {
	q := newQueue[*someBatch]()
	a, b, c := ofPages(2, minRunBytes), ofPages(1, minRunBytes), ofPages(3, minRunBytes)
	for _, batch := range []*someBatch{a, b, c} {
		q.addBatch(batch)
	}
	want := func(batch *someBatch, pair int) {
		t.Helper()
		if got, r, ok := q.takeRun(); !ok || got != batch || r != (pageRun{pair, 1}) {
			t.Fatalf("took %+v of another batch than wanted, %v; want page %d", r, ok, pair)
		}
	}
	want(a, 0)
	want(a, 1)
	q.removeBatch(b)
	want(c, 0)
	q.removeBatch(c) // Its remaining pages are dropped.
	q.removeBatch(c)
	if len(q.jobs) != 0 {
		t.Fatalf("%d batches are left", len(q.jobs))
	}
	q.addBatch(b)
	q.close()
	q.addBatch(a)
	if _, _, ok := q.takeRun(); ok || len(q.jobs) != 0 {
		t.Fatal("a closed queue gave a page, or kept a batch")
	}
}

package sim

import "github.com/kvferry/kvferry/effects"

// settledEarly says whether an initiator is told that its pages are its own again while
// the owner of the target still reads them, as planes do that map a peer's memory: what
// is read from then on can no longer be delivered, because the driver gives the pages a
// new mark of their own, which a copy finds changed when it ends.
func (w *world) settledEarly(t *transfer) bool {
	if w.plan.Leased || !t.asked || !w.struck(FaultEarly, t.name, 0) {
		return false
	}
	t.early = true
	for _, p := range t.pairs {
		t.source.pages[p.Local.Index].mark++
	}
	return true
}

// marked notes the marks that a transfer's pages have as it begins.
func (t *transfer) marked() {
	for _, p := range t.pairs {
		t.marks = append(t.marks, t.source.pages[p.Local.Index].mark)
	}
}

// unchanged says whether a page still is what was granted to be read.
func (t *transfer) unchanged(i int) bool {
	p := t.pairs[i].Local
	src := &t.source.pages[p.Index]
	return src.generation == p.Generation && src.mark == t.marks[i]
}

// stalled is how much longer a copy takes when its thread does not get to run.
func (w *world) stalled(t *transfer, step int) effects.Duration {
	if d, yes := w.strikes(FaultStall, t.name, uint64(step)); yes {
		return d.span(0, 3*effects.Second)
	}
	return 0
}

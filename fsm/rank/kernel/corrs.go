package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Corrs is the table of outstanding effects. It maps the correlation number of an effect to the row that waits for the
// completion. The number of outstanding effects is bounded by the credits of the rank.
type Corrs struct{ refs table.Slab[Ref] }

// NewCorrs returns a table for at most max outstanding effects.
func NewCorrs(max int) Corrs { return new(Corrs).Recycle(max) }

// Recycle is NewCorrs in the memory of t. The caller must not use t afterwards.
func (t *Corrs) Recycle(max int) Corrs { return Corrs{refs: t.refs.Recycle(max)} }

// Len returns the number of outstanding effects.
func (t *Corrs) Len() int { return t.refs.Len() }

// IsFull reports whether no credit is left.
func (t *Corrs) IsFull() bool { return t.refs.Full() }

// Open returns a new correlation number for an effect that is about to be emitted, and records the row that waits for
// the completion. Open panics if no credit is left.
func (t *Corrs) Open(ref Ref) effects.Corr {
	h, r := t.refs.Add()
	if r == nil {
		panic("BUG: more outstanding effects than the tables they belong to allow")
	}
	*r = ref
	return effects.Corr(h)
}

// Peek returns the row that waits for c, and leaves the effect outstanding, because a Settled event follows. Peek
// reports false if c is not outstanding.
func (t *Corrs) Peek(c effects.Corr) (Ref, bool) {
	r := t.refs.Get(table.Handle(c))
	if r == nil {
		return Ref{}, false
	}
	return *r, true
}

// Close takes the completion of c: it returns the row that waits for c, and the effect is no longer outstanding. Close
// reports false if c is not outstanding.
func (t *Corrs) Close(c effects.Corr) (Ref, bool) {
	ref, ok := t.Peek(c)
	if ok {
		t.refs.Remove(table.Handle(c))
	}
	return ref, ok
}

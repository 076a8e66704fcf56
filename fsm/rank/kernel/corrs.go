package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Corrs are the outstanding effects, bounded by the credits of the rank.
type Corrs struct{ refs table.Slab[Ref] }

// NewCorrs returns a table for at most max outstanding effects.
func NewCorrs(max int) Corrs { return new(Corrs).Emptied(max) }

// Emptied returns what NewCorrs does, in the memory of t, which is not used any more.
func (t *Corrs) Emptied(max int) Corrs { return Corrs{refs: t.refs.Emptied(max)} }

// Len is the number of outstanding effects.
func (t *Corrs) Len() int { return t.refs.Len() }

// Full says that no credit is left.
func (t *Corrs) Full() bool { return t.refs.Full() }

// Open gives a Corr for an effect about to be emitted.
func (t *Corrs) Open(ref Ref) effects.Corr {
	h, r := t.refs.Add()
	if r == nil {
		panic("BUG: more outstanding effects than the tables they belong to allow")
	}
	*r = ref
	return effects.Corr(h)
}

// Peek returns what the effect was for and keeps it outstanding: a Settled follows.
func (t *Corrs) Peek(c effects.Corr) (Ref, bool) {
	r := t.refs.Get(table.Handle(c))
	if r == nil {
		return Ref{}, false
	}
	return *r, true
}

// Close takes the completion of c.
func (t *Corrs) Close(c effects.Corr) (Ref, bool) {
	ref, ok := t.Peek(c)
	if ok {
		t.refs.Remove(table.Handle(c))
	}
	return ref, ok
}

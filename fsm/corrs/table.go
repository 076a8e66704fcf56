// Package corrs remembers what every outstanding effect was for. A Corr is never
// given twice, and its completion is taken exactly once.
package corrs

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Room says whose effect it was.
type Room uint8

// Rooms with outstanding effects.
const (
	Link Room = iota + 1
	Sender
	Receiver
	Pipeline
)

// Ref says what a completion is for: a kind of the room's own, its subject, and
// the attempt, by which a room tells completions of a former attempt. A room numbers the attempts
// of one slot upwards, whoever has it: so an attempt tells lives of a subject apart where handles do not any more.
type Ref struct {
	Room    Room
	Kind    uint8
	Subject table.Handle
	Attempt uint64
}

// Table is bounded by the credits of the rank.
type Table struct{ refs table.Slab[Ref] }

// New returns a table for at most max outstanding effects.
func New(max int) Table { return Table{refs: table.NewSlab[Ref](max)} }

// Len is the number of outstanding effects.
func (t *Table) Len() int { return t.refs.Len() }

// Full says that no credit is left.
func (t *Table) Full() bool { return t.refs.Full() }

// Open gives a Corr for an effect about to be emitted.
func (t *Table) Open(ref Ref) effects.Corr {
	h, r := t.refs.Add()
	if r == nil {
		panic("BUG: more outstanding effects than the tables they belong to allow")
	}
	*r = ref
	return effects.Corr(h)
}

// Peek returns what the effect was for and keeps it outstanding: a Settled follows.
func (t *Table) Peek(c effects.Corr) (Ref, bool) {
	r := t.refs.Get(table.Handle(c))
	if r == nil {
		return Ref{}, false
	}
	return *r, true
}

// Close takes the completion of c.
func (t *Table) Close(c effects.Corr) (Ref, bool) {
	ref, ok := t.Peek(c)
	if ok {
		t.refs.Remove(table.Handle(c))
	}
	return ref, ok
}

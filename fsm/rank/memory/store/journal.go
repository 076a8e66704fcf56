package store

import (
	"github.com/kvferry/kvferry/fsm/table"
)

// A Change is one change of the set of ready chunks: a chunk became ready, or was removed for whatever reason.
type Change struct {
	Sequence uint64 // counted from 1, without gaps
	Gone     bool   // the chunk was removed
	Hash     uint64
	Key      []byte
}

// A journal has the newest changes, for components that report the contents of the store to others, such as
// directories. The size is fixed. A reader that reads too rarely is told that changes are missing, and then reads all
// ready chunks (ReadyAt).
type journal struct {
	rows []Change // the change with sequence n is at n modulo the length
	last uint64   // sequence of the newest change
}

func (j *journal) emptied(max int) journal { return journal{rows: table.Zeroed(j.rows, max)} }

// note records one change of an entry.
func (j *journal) note(n *names, e *entry, gone bool) {
	if len(j.rows) == 0 {
		return
	}
	j.last++
	c := &j.rows[j.last%uint64(len(j.rows))]
	*c = Change{Sequence: j.last, Gone: gone, Hash: e.hash, Key: n.append(c.Key[:0], e.shape, e.digits)}
}

// Changed returns the sequence of the newest change. Changed returns 0 if there was no change or if there is no
// journal.
func (s *Store) Changed() uint64 { return s.journal.last }

// Journal appends to into the changes after a sequence, oldest first, as many as fit the capacity of into. Journal
// returns false if some of these changes are not remembered any more. Then nothing is appended, and only ReadyAt shows
// what the store has. The keys belong to the store, and are valid until its next change. Any number of readers may
// follow the journal, each with a sequence of its own.
func (s *Store) Journal(after uint64, into []Change) ([]Change, bool) {
	j := &s.journal
	if after > j.last || j.last-after > uint64(len(j.rows)) {
		return into, false
	}
	for n := after + 1; n <= j.last && len(into) < cap(into); n++ {
		into = append(into, j.rows[n%uint64(len(j.rows))])
	}
	return into, true
}

// ReadyAt returns the key of the ready chunk at a slot. ReadyAt reports false if there is none. The key is valid until
// the next call.
//
// To follow the store's contents, a reader notes Changed, goes through all slots, over any number of steps, and then
// reads the journal from the noted sequence on.
func (s *Store) ReadyAt(slot int32) ([]byte, bool) {
	e := s.entries.Get(s.entries.At(slot))
	if e == nil || !e.ready() {
		return nil, false
	}
	return s.names.text(e.shape, e.digits), true
}

package store

import (
	"github.com/kvferry/kvferry/fsm/table"
)

// A Change is one change of the set of ready chunks: a chunk became ready, or was removed for whatever reason.
type Change struct {
	Sequence uint64 // counted from 1, without gaps
	Removed  bool   // the chunk was removed
	Hash     uint64
	Key      []byte
}

// A journal has the newest changes, for components that report the contents of the store to others, such as
// directories. The size is fixed. A reader that reads too rarely is told that changes are missing, and then reads all
// ready chunks (ReadyAt).
type journal struct {
	changes      []Change // the change with sequence n is at n modulo the length
	lastSequence uint64   // sequence of the newest change
}

func (j *journal) recycle(max int) journal {
	return journal{changes: table.RecycleSlice(j.changes, max)}
}

// recordChange records one change of an entry.
func (j *journal) recordChange(n *names, e *entry, removed bool) {
	if len(j.changes) == 0 || e.isForeign { // Directories would name the chunk to peers of this node's domain.
		return
	}
	j.lastSequence++
	c := &j.changes[j.lastSequence%uint64(len(j.changes))]
	*c = Change{Sequence: j.lastSequence, Removed: removed, Hash: e.hash, Key: n.appendKey(c.Key[:0], e.shape, e.digits)}
}

// LastChange returns the sequence of the newest change. LastChange returns 0 if there was no change or if there is no
// journal.
func (s *Store) LastChange() uint64 { return s.journal.lastSequence }

// ChangesAfter appends to into the changes after a sequence, oldest first, as many as fit the capacity of into. Journal
// returns false if some of these changes are not remembered any more. Then nothing is appended, and only ReadyAt shows
// what the store has. The keys belong to the store, and are valid until its next change. Any number of readers may
// follow the journal, each with a sequence of its own.
func (s *Store) ChangesAfter(after uint64, dst []Change) ([]Change, bool) {
	j := &s.journal
	if after > j.lastSequence || j.lastSequence-after > uint64(len(j.changes)) {
		return dst, false
	}
	for n := after + 1; n <= j.lastSequence && len(dst) < cap(dst); n++ {
		dst = append(dst, j.changes[n%uint64(len(j.changes))])
	}
	return dst, true
}

// ReadyAt returns the key of the ready chunk at a slot. ReadyAt reports false if there is none, or if peers of another
// trust domain filled it. The key is valid until
// the next call.
//
// To follow the store's contents, a reader notes LastChange, goes through all slots, over any number of steps, and then
// reads the journal from the noted sequence on.
func (s *Store) ReadyAt(slot int32) ([]byte, bool) {
	e := s.entries.Get(s.entries.At(slot))
	if e == nil || !e.isReady() || e.isForeign {
		return nil, false
	}
	return s.names.keyText(e.shape, e.digits), true
}

package store

import (
	"github.com/kvferry/kvferry/fsm/table"
)

// A Change is one thing that became of the set of ready chunks: a key came to it, or went for whatever reason.
type Change struct {
	Sequence uint64 // from 1, without gaps
	Gone     bool
	Hash     uint64
	Key      []byte
}

// A journal is the newest changes, for those who tell others what the store has. It is of a fixed size: who reads too
// seldom is told so, and looks at all there is (ReadyAt).
type journal struct {
	rows []Change // sequence n is at n modulo their number
	last uint64
}

func (j *journal) emptied(max int) journal { return journal{rows: table.Zeroed(j.rows, max)} }

func (j *journal) note(n *names, e *entry, gone bool) {
	if len(j.rows) == 0 {
		return
	}
	j.last++
	c := &j.rows[j.last%uint64(len(j.rows))]
	*c = Change{Sequence: j.last, Gone: gone, Hash: e.hash, Key: n.append(c.Key[:0], e.shape, e.digits)}
}

// Changed is the sequence of the newest change; 0 if there was none, or if there is no journal.
func (s *Store) Changed() uint64 { return s.journal.last }

// Journal appends to into the changes after a sequence, oldest first, as many as fit its capacity. It says false when
// some of them are remembered no more: then nothing is appended, and only ReadyAt tells what there is. Keys are the
// store's, until its next change. Any number of readers may follow, each with a sequence of its own.
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

// ReadyAt is the key of the ready chunk at a slot, if there is one. Who goes through all slots, over as many steps as
// it likes, and then follows the journal from what Changed was before, knows all that the store has. The key is valid
// until the next call.
func (s *Store) ReadyAt(slot int32) ([]byte, bool) {
	e := s.entries.Get(s.entries.At(slot))
	if e == nil || !e.ready() {
		return nil, false
	}
	return s.names.text(e.shape, e.digits), true
}

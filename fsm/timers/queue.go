// Package timers keeps all deadlines of a rank in one indexed heap with true
// removal, so that nothing ever has to be cancelled outside the machine.
package timers

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Room says whose deadline it is.
type Room uint8

// Rooms with deadlines.
const (
	Link Room = iota + 1
	Sender
	Receiver
	Rank
	Pipeline
)

// Ref says what a deadline is for: a kind of the room's own and its subject.
type Ref struct {
	Room    Room
	Kind    uint8
	Subject table.Handle
}

// ID names a pending deadline; zero names none.
type ID = table.Handle

type timer struct {
	at  effects.Time
	seq uint64
	ref Ref
	pos int
}

// Queue is the heap. Equal instants fire in the order they were set.
type Queue struct {
	timers table.Slab[timer]
	heap   []ID
	seq    uint64
}

// New returns a queue of at most max deadlines.
func New(max int) Queue { return Queue{timers: table.NewSlab[timer](max)} }

// Len is the number of pending deadlines.
func (q *Queue) Len() int { return len(q.heap) }

// Next is the earliest deadline.
func (q *Queue) Next() (effects.Time, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.timers.Get(q.heap[0]).at, true
}

// Set adds a deadline and removes the one that *id named, if any.
func (q *Queue) Set(id *ID, at effects.Time, ref Ref) {
	q.Stop(id)
	h, t := q.timers.Add()
	if t == nil {
		panic("BUG: more deadlines than the tables they belong to have entries")
	}
	q.seq++
	*t = timer{at: at, seq: q.seq, ref: ref, pos: len(q.heap)}
	q.heap = append(q.heap, h)
	q.up(t.pos)
	*id = h
}

// Stop removes the deadline, if it is still pending, and clears *id.
func (q *Queue) Stop(id *ID) {
	if t := q.timers.Get(*id); t != nil {
		q.remove(t.pos)
	}
	*id = 0
}

// Peek is what Pop would return; to look at only.
func (q *Queue) Peek(now effects.Time) (Ref, bool) {
	if len(q.heap) == 0 {
		return Ref{}, false
	}
	t := q.timers.Get(q.heap[0])
	return t.ref, t.at <= now
}

// Pop removes and returns the earliest deadline that is not after now.
func (q *Queue) Pop(now effects.Time) (Ref, bool) {
	if len(q.heap) == 0 {
		return Ref{}, false
	}
	t := q.timers.Get(q.heap[0])
	if t.at > now {
		return Ref{}, false
	}
	ref := t.ref
	q.remove(0)
	return ref, true
}

func (q *Queue) remove(pos int) {
	h := q.heap[pos]
	last := len(q.heap) - 1
	q.swap(pos, last)
	q.heap = q.heap[:last]
	if pos < last {
		q.down(pos)
		q.up(pos)
	}
	q.timers.Remove(h)
}

func (q *Queue) less(i, j int) bool {
	a, b := q.timers.Get(q.heap[i]), q.timers.Get(q.heap[j])
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *Queue) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.timers.Get(q.heap[i]).pos = i
	q.timers.Get(q.heap[j]).pos = j
}

func (q *Queue) up(pos int) {
	for pos > 0 {
		parent := (pos - 1) / 2
		if !q.less(pos, parent) {
			return
		}
		q.swap(pos, parent)
		pos = parent
	}
}

func (q *Queue) down(pos int) {
	for {
		child := 2*pos + 1
		if child >= len(q.heap) {
			return
		}
		if child+1 < len(q.heap) && q.less(child+1, child) {
			child++
		}
		if !q.less(child, pos) {
			return
		}
		q.swap(pos, child)
		pos = child
	}
}

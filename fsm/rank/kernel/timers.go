package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// TimerID names a pending deadline. Zero names none.
type TimerID = table.Handle

// timer is a pending deadline: the row to notify, and the position in the heap.
type timer struct {
	ref Ref
	pos int32 // the index in the heap
}

// deadline is an entry of the heap. It holds all that the order depends on.
type deadline struct {
	at  effects.Time
	seq uint64
	id  TimerID
}

// expiresBefore orders entries by time, and by the order of the calls to Set if the times are equal.
func (d *deadline) expiresBefore(o *deadline) bool {
	return d.at < o.at || d.at == o.at && d.seq < o.seq
}

// Timers holds the pending deadlines in a heap. Deadlines at the same instant expire in the order of the calls to Set.
type Timers struct {
	timers table.Slab[timer]
	heap   table.Array[deadline]
	seq    uint64
}

// NewTimers returns a heap for at most max deadlines.
func NewTimers(max int) Timers { return new(Timers).Recycle(max) }

// Recycle is NewTimers in the memory of q. The caller must not use q afterwards.
func (q *Timers) Recycle(max int) Timers {
	return Timers{timers: q.timers.Recycle(max), heap: q.heap.Recycle()}
}

// Len returns the number of pending deadlines.
func (q *Timers) Len() int { return q.heap.Len() }

// NextDeadline returns the earliest deadline. NextDeadline reports false if there is none.
func (q *Timers) NextDeadline() (effects.Time, bool) {
	if q.heap.Len() == 0 {
		return 0, false
	}
	return q.heap.At(0).at, true
}

// EarliestDeadline returns the same as NextDeadline, and looks at each deadline. Use it for inspection only.
func (q *Timers) EarliestDeadline() (at effects.Time, found bool) {
	for i := range q.heap.Len() {
		if x := q.heap.At(i).at; !found || x < at {
			at, found = x, true
		}
	}
	return at, found
}

// Set adds a deadline for ref, after removing the deadline that *id names, if any. It stores the new id in *id. Set
// panics if the heap is full.
func (q *Timers) Set(id *TimerID, at effects.Time, ref Ref) {
	q.Stop(id)
	h, t := q.timers.Add()
	if t == nil {
		panic("BUG: more deadlines than the tables they belong to have entries")
	}
	q.seq++
	*t = timer{ref: ref, pos: int32(q.heap.Len())}
	q.heap.Push(deadline{at: at, seq: q.seq, id: h}, q.timers.Max())
	q.siftUp(int(t.pos))
	*id = h
}

// Stop removes the deadline that *id names, if the deadline is still pending, and clears *id.
func (q *Timers) Stop(id *TimerID) {
	if t := q.timers.Get(*id); t != nil {
		q.removeAt(int(t.pos))
	}
	*id = 0
}

// DeadlineOf returns the time of a pending deadline. DeadlineOf reports false if id names none. It is for inspection only.
func (q *Timers) DeadlineOf(id TimerID) (effects.Time, bool) {
	if t := q.timers.Get(id); t != nil {
		return q.heap.At(int(t.pos)).at, true
	}
	return 0, false
}

// Peek returns the row of the earliest deadline and whether the deadline is due, without removing it. It is for
// inspection only.
func (q *Timers) Peek(now effects.Time) (Ref, bool) {
	if q.heap.Len() == 0 {
		return Ref{}, false
	}
	return q.timers.Get(q.heap.At(0).id).ref, q.heap.At(0).at <= now
}

// Pop removes the earliest deadline and returns its row. Pop reports false if no deadline is due at now.
func (q *Timers) Pop(now effects.Time) (Ref, bool) {
	if q.heap.Len() == 0 || q.heap.At(0).at > now {
		return Ref{}, false
	}
	ref := q.timers.Get(q.heap.At(0).id).ref
	q.removeAt(0)
	return ref, true
}

func (q *Timers) removeAt(pos int) {
	q.timers.Remove(q.heap.At(pos).id)
	last := q.heap.Len() - 1
	moved := *q.heap.At(last)
	q.heap.Pop()
	if pos < last {
		q.setAt(pos, moved)
		q.siftDown(pos)
		q.siftUp(pos)
	}
}

func (q *Timers) setAt(pos int, d deadline) {
	*q.heap.At(pos) = d
	q.timers.Get(d.id).pos = int32(pos)
}

func (q *Timers) swapEntries(i, j int) {
	a, b := *q.heap.At(i), *q.heap.At(j)
	q.setAt(i, b)
	q.setAt(j, a)
}

func (q *Timers) siftUp(pos int) {
	for pos > 0 {
		parent := (pos - 1) / 2
		if !q.heap.At(pos).expiresBefore(q.heap.At(parent)) {
			return
		}
		q.swapEntries(pos, parent)
		pos = parent
	}
}

func (q *Timers) siftDown(pos int) {
	for n := q.heap.Len(); ; {
		child := 2*pos + 1
		if child >= n {
			return
		}
		if child+1 < n && q.heap.At(child+1).expiresBefore(q.heap.At(child)) {
			child++
		}
		if !q.heap.At(child).expiresBefore(q.heap.At(pos)) {
			return
		}
		q.swapEntries(pos, child)
		pos = child
	}
}

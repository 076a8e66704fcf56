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

// due is an entry of the heap. It holds all that the order depends on.
type due struct {
	at  effects.Time
	seq uint64
	id  TimerID
}

// before orders entries by time, and by the order of the calls to Set if the times are equal.
func (d *due) before(o *due) bool { return d.at < o.at || d.at == o.at && d.seq < o.seq }

// Timers holds the pending deadlines in a heap. Deadlines at the same instant expire in the order of the calls to Set.
type Timers struct {
	timers table.Slab[timer]
	heap   table.Array[due]
	seq    uint64
}

// NewTimers returns a heap for at most max deadlines.
func NewTimers(max int) Timers { return new(Timers).Emptied(max) }

// Emptied is NewTimers in the memory of q. The caller must not use q afterwards.
func (q *Timers) Emptied(max int) Timers {
	return Timers{timers: q.timers.Emptied(max), heap: q.heap.Emptied()}
}

// Len returns the number of pending deadlines.
func (q *Timers) Len() int { return q.heap.Len() }

// Next returns the earliest deadline. Next reports false if there is none.
func (q *Timers) Next() (effects.Time, bool) {
	if q.heap.Len() == 0 {
		return 0, false
	}
	return q.heap.At(0).at, true
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
	q.heap.Push(due{at: at, seq: q.seq, id: h}, q.timers.Max())
	q.up(int(t.pos))
	*id = h
}

// Stop removes the deadline that *id names, if the deadline is still pending, and clears *id.
func (q *Timers) Stop(id *TimerID) {
	if t := q.timers.Get(*id); t != nil {
		q.remove(int(t.pos))
	}
	*id = 0
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
	q.remove(0)
	return ref, true
}

func (q *Timers) remove(pos int) {
	q.timers.Remove(q.heap.At(pos).id)
	last := q.heap.Len() - 1
	moved := *q.heap.At(last)
	q.heap.Pop()
	if pos < last {
		q.put(pos, moved)
		q.down(pos)
		q.up(pos)
	}
}

func (q *Timers) put(pos int, d due) {
	*q.heap.At(pos) = d
	q.timers.Get(d.id).pos = int32(pos)
}

func (q *Timers) swap(i, j int) {
	a, b := *q.heap.At(i), *q.heap.At(j)
	q.put(i, b)
	q.put(j, a)
}

func (q *Timers) up(pos int) {
	for pos > 0 {
		parent := (pos - 1) / 2
		if !q.heap.At(pos).before(q.heap.At(parent)) {
			return
		}
		q.swap(pos, parent)
		pos = parent
	}
}

func (q *Timers) down(pos int) {
	for n := q.heap.Len(); ; {
		child := 2*pos + 1
		if child >= n {
			return
		}
		if child+1 < n && q.heap.At(child+1).before(q.heap.At(child)) {
			child++
		}
		if !q.heap.At(child).before(q.heap.At(pos)) {
			return
		}
		q.swap(pos, child)
		pos = child
	}
}

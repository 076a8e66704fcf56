package kernel

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A TimerID names a pending deadline; zero names none.
type TimerID = table.Handle

type timer struct {
	ref Ref
	pos int32 // in the heap
}

// due is a place in the heap: it has what the order depends on.
type due struct {
	at  effects.Time
	seq uint64
	id  TimerID
}

func (d *due) before(o *due) bool { return d.at < o.at || d.at == o.at && d.seq < o.seq }

// Timers are the pending deadlines. Equal instants fire in the order they were set.
type Timers struct {
	timers table.Slab[timer]
	heap   table.Array[due]
	seq    uint64
}

// NewTimers returns room for at most max deadlines.
func NewTimers(max int) Timers { return new(Timers).Emptied(max) }

// Emptied returns what NewTimers does, in the memory of q, which is not used any more.
func (q *Timers) Emptied(max int) Timers {
	return Timers{timers: q.timers.Emptied(max), heap: q.heap.Emptied()}
}

// Len is the number of pending deadlines.
func (q *Timers) Len() int { return q.heap.Len() }

// Next is the earliest deadline.
func (q *Timers) Next() (effects.Time, bool) {
	if q.heap.Len() == 0 {
		return 0, false
	}
	return q.heap.At(0).at, true
}

// Set adds a deadline and removes the one that *id named, if any.
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

// Stop removes the deadline, if it is still pending, and clears *id.
func (q *Timers) Stop(id *TimerID) {
	if t := q.timers.Get(*id); t != nil {
		q.remove(int(t.pos))
	}
	*id = 0
}

// Peek is what Pop would return; to look at only.
func (q *Timers) Peek(now effects.Time) (Ref, bool) {
	if q.heap.Len() == 0 {
		return Ref{}, false
	}
	return q.timers.Get(q.heap.At(0).id).ref, q.heap.At(0).at <= now
}

// Pop removes and returns the earliest deadline that is not after now.
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

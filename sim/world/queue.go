package world

import (
	"fmt"
	"slices"
)

// A Delivery is something that will happen at one instant: an event for a node's machine, a step of a data plane, an
// action of an engine, or a fault. The meaning of A, B and C depends on Kind: see [LineForms].
type Delivery struct {
	Kind        Kind
	Node        int32  // the node concerned; a frozen process receives the delivery on thawing
	Incarnation uint32 // the incarnation concerned; no other incarnation receives the delivery
	A           uint64
	B           uint64
	C           uint64
	Body        []byte
}

// QueueEntry is the position of a delivery in the queue. Deliveries are ordered by time, then by the order in which
// they were queued.
type QueueEntry struct {
	at   int64
	Seq  uint64
	Slot uint32
}

func (q *QueueEntry) before(p *QueueEntry) bool { return q.at < p.at || q.at == p.at && q.Seq < p.Seq }

// Queue is a 4-ary heap of small keys over a slab of deliveries, which needs fewer levels and fewer cache lines than a
// binary heap of large entries. Deliveries that are queued for the current instant, which are very frequent, wait
// beside the heap in the order in which they were queued, so that no sifting is needed.
type Queue struct {
	Heap      []QueueEntry
	immediate []QueueEntry // all for the current instant; [head:] are left
	head      int
	Slab      []Delivery
	spare     []uint32
	Seq       uint64

	lastInstant int64 // of the delivery that was taken last
	hasPopped   bool  // a delivery was taken
}

// Push queues a delivery for the instant at.
func (q *Queue) Push(at int64, d Delivery) {
	var slot uint32
	if n := len(q.spare); n > 0 {
		slot, q.spare = q.spare[n-1], q.spare[:n-1]
		q.Slab[slot] = d
	} else {
		slot = uint32(len(q.Slab))
		q.Slab = append(q.Slab, d)
	}
	q.Seq++
	x := QueueEntry{at, q.Seq, slot}
	if q.hasPopped && at == q.lastInstant && (q.head == len(q.immediate) || q.immediate[q.head].at == at) {
		q.immediate = append(q.immediate, x)
		return
	}
	q.Heap = append(q.Heap, x)
	q.siftUp(len(q.Heap) - 1)
}

// resetQueue removes all deliveries and keeps the memory.
func (q *Queue) resetQueue() {
	clear(q.Slab)
	*q = Queue{Heap: q.Heap[:0], immediate: q.immediate[:0], Slab: q.Slab[:0], spare: q.spare[:0]}
}

// Len returns the number of queued deliveries.
func (q *Queue) Len() int { return len(q.Heap) + len(q.immediate) - q.head }

// NextInstant returns the instant at which the earliest delivery is due. The queue must not be empty.
func (q *Queue) NextInstant() int64 {
	if q.isHeapNext() {
		return q.Heap[0].at
	}
	return q.immediate[q.head].at
}

// isHeapNext reports whether the earliest delivery is in the heap.
func (q *Queue) isHeapNext() bool {
	return q.head == len(q.immediate) || len(q.Heap) > 0 && q.Heap[0].before(&q.immediate[q.head])
}

// Pop removes the earliest delivery and returns it with its instant. The queue must not be empty.
func (q *Queue) Pop() (at int64, d Delivery) {
	var top QueueEntry
	if q.isHeapNext() {
		top = q.Heap[0]
		last := len(q.Heap) - 1
		q.Heap[0] = q.Heap[last]
		q.Heap = q.Heap[:last]
		if last > 0 {
			q.siftDown(0)
		}
	} else {
		top = q.immediate[q.head]
		if q.head++; q.head == len(q.immediate) {
			q.immediate, q.head = q.immediate[:0], 0
		}
	}
	q.lastInstant, q.hasPopped = top.at, true
	d = q.Slab[top.Slot]
	q.Slab[top.Slot].Body = nil
	q.spare = append(q.spare, top.Slot)
	return top.at, d
}

func (q *Queue) siftUp(i int) {
	x := q.Heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(&q.Heap[parent]) {
			break
		}
		q.Heap[i] = q.Heap[parent]
		i = parent
	}
	q.Heap[i] = x
}

func (q *Queue) siftDown(i int) {
	heap := q.Heap
	x := heap[i]
	for {
		first := 4*i + 1
		if first >= len(heap) {
			break
		}
		least, earliest := first, heap[first]
		for c := first + 1; c < len(heap) && c < first+4; c++ {
			if h := &heap[c]; h.at < earliest.at || h.at == earliest.at && h.Seq < earliest.Seq {
				least, earliest = c, *h
			}
		}
		if !earliest.before(&x) {
			break
		}
		heap[i], i = earliest, least
	}
	heap[i] = x
}

// RemoveBySeq removes the delivery with the given sequence number from the heap and returns the delivery.
func (q *Queue) RemoveBySeq(seq uint64) Delivery {
	i := slices.IndexFunc(q.Heap, func(x QueueEntry) bool { return x.Seq == seq })
	if i < 0 {
		panic(fmt.Sprintf("BUG: delivery %d is not queued", seq))
	}
	slot := q.Heap[i].Slot
	q.Heap = slices.Delete(q.Heap, i, i+1)
	d := q.Slab[slot]
	q.Slab[slot] = Delivery{}
	q.spare = append(q.spare, slot)
	return d
}

package sim

// A delivery is one thing that will happen at one instant: an event for a node's
// machine, a step of a data plane, a wish of an engine, or a fault.
type delivery struct {
	kind kind
	node int32  // whose it is; a frozen process gets it when it thaws
	life uint32 // the node's life it belongs to; another life never sees it
	a    uint64
	b    uint64
	c    uint64
	body []byte
}

// queued orders deliveries by time, then by the order in which they were sent.
type queued struct {
	at   int64
	seq  uint64
	slot uint32
}

func (q queued) before(p queued) bool { return q.at < p.at || q.at == p.at && q.seq < p.seq }

// queue is a 4-ary heap of small keys over a slab of deliveries: fewer levels and
// fewer cache lines than a binary heap of large entries. What is sent for the very
// instant that is going on, as very much is, waits beside it in the order in which it
// came: nothing in there has to be sifted.
type queue struct {
	heap   []queued
	atOnce []queued // all for one instant; [head:] are left
	head   int
	slab   []delivery
	spare  []uint32
	seq    uint64

	instant int64 // of what was popped last
	popped  bool  // anything was
}

func (q *queue) push(at int64, d delivery) {
	var slot uint32
	if n := len(q.spare); n > 0 {
		slot, q.spare = q.spare[n-1], q.spare[:n-1]
		q.slab[slot] = d
	} else {
		slot = uint32(len(q.slab))
		q.slab = append(q.slab, d)
	}
	q.seq++
	x := queued{at, q.seq, slot}
	if q.popped && at == q.instant && (q.head == len(q.atOnce) || q.atOnce[q.head].at == at) {
		q.atOnce = append(q.atOnce, x)
		return
	}
	q.heap = append(q.heap, x)
	q.up(len(q.heap) - 1)
}

// reset forgets all deliveries and keeps the memory.
func (q *queue) reset() {
	clear(q.slab)
	*q = queue{heap: q.heap[:0], atOnce: q.atOnce[:0], slab: q.slab[:0], spare: q.spare[:0]}
}

func (q *queue) len() int { return len(q.heap) + len(q.atOnce) - q.head }

// next is when the earliest delivery is due; there must be one.
func (q *queue) next() int64 {
	if q.heaped() {
		return q.heap[0].at
	}
	return q.atOnce[q.head].at
}

// heaped says whether the earliest delivery is in the heap.
func (q *queue) heaped() bool {
	return q.head == len(q.atOnce) || len(q.heap) > 0 && q.heap[0].before(q.atOnce[q.head])
}

// pop takes the earliest delivery.
func (q *queue) pop() (at int64, d delivery) {
	var top queued
	if q.heaped() {
		top = q.heap[0]
		last := len(q.heap) - 1
		q.heap[0] = q.heap[last]
		q.heap = q.heap[:last]
		if last > 0 {
			q.down(0)
		}
	} else {
		top = q.atOnce[q.head]
		if q.head++; q.head == len(q.atOnce) {
			q.atOnce, q.head = q.atOnce[:0], 0
		}
	}
	q.instant, q.popped = top.at, true
	d = q.slab[top.slot]
	q.slab[top.slot].body = nil
	q.spare = append(q.spare, top.slot)
	return top.at, d
}

func (q *queue) up(i int) {
	x := q.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = x
}

func (q *queue) down(i int) {
	x := q.heap[i]
	for {
		first := 4*i + 1
		if first >= len(q.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(q.heap)); c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if !q.heap[least].before(x) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	q.heap[i] = x
}

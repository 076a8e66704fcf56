package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Table contains the puts of one flow, and the queues in which they wait for the lanes of their peers. A put must
// leave its queue before its row is removed.
type Table[P any, R RowOf[P]] struct {
	table.Slab[P]
	queues    []peerQueues // indexed by the slot of the outbound peer
	sentCount uint64       `snap:"skip"` // number of puts sent on alloc lanes
}

// RowOf is the constraint for a flow's own row type, which contains a Row.
type RowOf[P any] interface {
	*P
	BaseRow() *Row
}

// A peerQueues contains the queues of puts that wait for the lanes of one peer, oldest first.
type peerQueues struct {
	allocQueue table.List // to be sent on the alloc lane
	// stopQueue contains puts that are not to be sent any more: a circuit breaker has opened for them, and their flow
	// stops them.
	stopQueue  table.List
	finalQueue table.List // with a final message to send on the commit lane
	// finishedCount counts the puts in last for which the engine has everything back, so that a drain need not wait for
	// a peer that cannot be reached.
	finishedCount int
	chargedConn   effects.Conn `snap:"skip"` // the connection that ChargeConnLoss last charged a put for
	// breakerOpenings is the value of Breakers.CountOpenings when first was last searched for puts that a breaker
	// stops. No other put in first is stopped before a breaker opens again.
	breakerOpenings uint64 `snap:"skip"`
}

// Recycle returns an empty Table for this number of puts and of peers. Recycle reuses the memory of t, which must not
// be used afterwards.
func (t *Table[P, R]) Recycle(puts, peers uint32) Table[P, R] {
	return Table[P, R]{Slab: t.Slab.Recycle(int(puts)), queues: table.RecycleSlice(t.queues, int(peers))}
}

func (t *Table[P, R]) rowAt(h table.Handle) *Row { return R(t.Get(h)).BaseRow() }

func (t *Table[P, R]) queuesOf(peer table.Handle) *peerQueues { return &t.queues[peer.Slot()] }

// QueueAlloc appends a put to the queue for the alloc lane. A put that was sent before returns to its position among
// the puts that were sent and are back, ahead of the puts that were never sent. A put that a circuit breaker stops goes
// to the queue alone.
func (t *Table[P, R]) QueueAlloc(e *flow.Env, h table.Handle) {
	r := t.rowAt(h)
	r.linkAttempt = e.Links.Outbound(r.Peer).AttemptNumber()
	of := t.queuesOf(r.Peer)
	q := &of.allocQueue
	if isBackedOff(e, r) { // A breaker may have opened while it was in flight.
		t.PushBack(&of.stopQueue, h)
		return
	}
	if r.Attempt == 0 {
		t.PushBack(q, h)
		return
	}
	before := q.Front()
	for before != 0 {
		if of := t.rowAt(before); of.Attempt == 0 || of.sendOrder > r.sendOrder {
			break
		}
		before = t.Next(before)
	}
	t.InsertBefore(q, h, before)
}

// FirstAlloc returns the put that is next on a peer's alloc lane, or zero if no put waits for that lane.
func (t *Table[P, R]) FirstAlloc(peer table.Handle) table.Handle {
	return t.queuesOf(peer).allocQueue.Front()
}

// UnqueueAlloc removes a put from the queue for the alloc lane.
func (t *Table[P, R]) UnqueueAlloc(h table.Handle) {
	r := t.rowAt(h)
	if queues := t.queuesOf(r.Peer); r.backedOff {
		t.Unlink(&queues.stopQueue, h)
		r.backedOff = false
	} else {
		t.Unlink(&queues.allocQueue, h)
	}
}

// NextUnlinkable returns a put that waits in vain for a peer without an open link, and the code with which its flow
// stops the put. NextUnlinkable returns zero if there is none.
func (t *Table[P, R]) NextUnlinkable(e *flow.Env, peer table.Handle) (table.Handle, effects.Code) {
	h := t.FirstAlloc(peer)
	if h == 0 {
		return 0, effects.OK
	}
	g, cause := e.Links.Outbound(peer).Gate()
	r := t.rowAt(h)
	if !r.isUnlinkable(e, g) {
		return 0, effects.OK
	}
	r.SetSharedReason(cause, e.Links.Outbound(peer).FailureReason())
	return h, cause
}

// HandleRefusal handles the refusal of a put. If the code means that the peer has nothing to give for the time being,
// Refused opens the circuit breaker of the peer's address and returns true: the puts that wait behind this put are then
// to be stopped, as NextBackedOff says. A peer without memory for this put may have memory for a smaller put; refusals
// for other reasons hold for all puts.
func (r *Row) HandleRefusal(e *flow.Env, code effects.Code, reason string) bool {
	minChunks := uint32(0)
	if code == effects.NoMemory {
		minChunks = r.chunks
	}
	if !isReceiverFull(code) || r.chunks == 0 ||
		!e.Breakers.Trip(e.Now, r.PeerAddr, code, reason, e.Cfg.Window > 1, minChunks) {
		return false
	}
	e.Out.Mark(Marks.BackedOff)
	return true
}

// NextBackedOff returns a put that waits for a peer and for which the peer's circuit breaker is open, whichever put
// opened the breaker. The flow stops the put as BackedOff. NextBackedOff returns zero if there is none. The peer may
// have reported that it is full after the put was given, or after the put was sent if the reply was lost. Therefore no
// put waits for a lane while a breaker is open for the put.
func (t *Table[P, R]) NextBackedOff(e *flow.Env, peer table.Handle) table.Handle {
	queues := t.queuesOf(peer)
	if queues.breakerOpenings != e.Breakers.CountOpenings() {
		queues.breakerOpenings = e.Breakers.CountOpenings()
		for h := queues.allocQueue.Front(); h != 0; {
			r, next := t.rowAt(h), t.Next(h)
			if e.Work.SpendLook(); isBackedOff(e, r) {
				t.Unlink(&queues.allocQueue, h)
				t.PushBack(&queues.stopQueue, h)
			}
			h = next
		}
	}
	h := queues.stopQueue.Front()
	if h != 0 {
		e.Out.Mark(Marks.PeerBackedOff)
	}
	return h
}

// isBackedOff reports whether a circuit breaker is open for a put. If so, isBackedOff marks the put to be stopped.
func isBackedOff(e *flow.Env, r *Row) bool {
	if r.chunks == 0 || !e.Breakers.IsOpen(e.Now, r.PeerAddr, r.chunks) {
		return false
	}
	r.backedOff, r.NoRoom = true, true
	r.SetReason(effects.BackedOff, e.Breakers.OpenReason(r.PeerAddr))
	return true
}

// MayStop reports whether this step has work to stop one more of the puts that wait for a peer. If not, the flow is
// signaled for the peer again in the next step, which has work for at least one put; so all of them end.
func (t *Table[P, R]) MayStop(e *flow.Env, h table.Handle) bool {
	r := t.rowAt(h)
	if !e.Work.HasBudget() {
		e.Links.MarkChanged(r.Peer)
		return false
	}
	e.Work.SpendRows(r.Size())
	return true
}

// MaySend reports whether this step has work to send one more put. If not, the flow is signaled for the peer again in
// the next step. The work is counted when the put is sent.
func (t *Table[P, R]) MaySend(e *flow.Env, h table.Handle) bool {
	if !e.Work.HasBudget() {
		e.Out.Mark(Marks.AsksCut)
		e.Links.MarkChanged(t.rowAt(h).Peer)
		return false
	}
	return true
}

// QueueFinal appends a put to the queue for the commit lane, with its final message. finished says whether the engine
// has the put's outcome and its memory; SetFinished changes this later.
func (t *Table[P, R]) QueueFinal(h table.Handle, finished bool) {
	t.PushBack(&t.queuesOf(t.rowAt(h).Peer).finalQueue, h)
	t.SetFinished(h, finished)
}

// SetFinished sets whether the engine of a put in the queue for the commit lane has everything back.
func (t *Table[P, R]) SetFinished(h table.Handle, finished bool) {
	r := t.rowAt(h)
	if r.finished == finished {
		return
	}
	r.finished = finished
	if finished {
		t.queuesOf(r.Peer).finishedCount++
	} else {
		t.queuesOf(r.Peer).finishedCount--
	}
}

// UnqueueFinal removes a put from the queue for the commit lane.
func (t *Table[P, R]) UnqueueFinal(h table.Handle) {
	t.SetFinished(h, false)
	t.Unlink(&t.queuesOf(t.rowAt(h).Peer).finalQueue, h)
}

// TakeFinal removes the first put from the queue for the commit lane and takes the lane for it. TakeFinal returns zero
// if the queue is empty or the lane is not free. The link must be up.
func (t *Table[P, R]) TakeFinal(e *flow.Env, peer table.Handle) (table.Handle, effects.Conn) {
	q := &t.queuesOf(peer).finalQueue
	h := q.Front()
	if h == 0 {
		return 0, 0
	}
	conn := e.Links.AcquireLane(&e.Env, peer, link.LaneCommit)
	if conn == 0 {
		return 0, 0
	}
	t.UnqueueFinal(h)
	return h, conn
}

// EachPut calls visit with every put, in the order of the slots.
func (t *Table[P, R]) EachPut(visit func(*Row)) {
	for slot := range t.Slots() {
		if h := t.At(slot); h != 0 {
			visit(t.rowAt(h))
		}
	}
}

// CountUnfinished returns the number of puts that a drain waits for. A put that is over, and only has a final message
// to send to a peer that cannot be reached, is not counted, because the end of the peer's lease has the same effect in
// time. The count is kept for each peer, of which there are at most tables.peers. So no put is visited, however many
// puts a drain finds and however many steps it takes.
func (t *Table[P, R]) CountUnfinished(e *flow.Env) int {
	left := t.Len()
	for i := range t.queues {
		queues := &t.queues[i]
		if queues.finishedCount == 0 {
			continue
		}
		if state, _ := e.Links.Outbound(t.rowAt(queues.finalQueue.Front()).Peer).State(); state != link.Ready {
			left -= queues.finishedCount
		}
	}
	return left
}

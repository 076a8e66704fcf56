package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Table contains the puts of one flow, and the queues in which they wait for the lanes of their peers. A put must
// leave its queue before its row is removed.
type Table[P any, R Of[P]] struct {
	table.Slab[P]
	lines []line // indexed by the slot of the outbound peer
	sent  uint64 `snap:"skip"` // number of puts sent on alloc lanes
}

// Of is the constraint for a flow's own row type, which contains a Row.
type Of[P any] interface {
	*P
	Base() *Row
}

// A line contains the queues of puts that wait for the lanes of one peer, oldest first.
type line struct {
	first table.List // to be sent on the alloc lane
	// alone contains puts that are not to be sent any more: a circuit breaker has opened for them, and their flow stops
	// them.
	alone table.List
	last  table.List // with a final message to send on the commit lane
	// over counts the puts in last for which the engine has everything back, so that a drain need not wait for a peer
	// that cannot be reached.
	over int
	lost effects.Conn `snap:"skip"` // the connection that Charge last charged a put for
	// opens is the value of Breakers.Opens when first was last searched for puts that a breaker stops. No other put in
	// first is stopped before a breaker opens again.
	opens uint64 `snap:"skip"`
}

// Emptied returns an empty Table for this number of puts and of peers. Emptied reuses the memory of t, which must not
// be used afterwards.
func (t *Table[P, R]) Emptied(puts, peers uint32) Table[P, R] {
	return Table[P, R]{Slab: t.Slab.Emptied(int(puts)), lines: table.Zeroed(t.lines, int(peers))}
}

func (t *Table[P, R]) row(h table.Handle) *Row { return R(t.Get(h)).Base() }

func (t *Table[P, R]) line(peer table.Handle) *line { return &t.lines[peer.Slot()] }

// Queue appends a put to the queue for the alloc lane. A put that was sent before returns to its position among the
// puts that were sent and are back, ahead of the puts that were never sent. A put that a circuit breaker stops goes to
// the queue alone.
func (t *Table[P, R]) Queue(e *flow.Env, h table.Handle) {
	r := t.row(h)
	r.reached = e.Links.Outbound(r.Peer).Attempt()
	of := t.line(r.Peer)
	q := &of.first
	if isLeftAlone(e, r) { // A breaker may have opened while it was in flight.
		t.PushBack(&of.alone, h)
		return
	}
	if r.Attempt == 0 {
		t.PushBack(q, h)
		return
	}
	before := q.Front()
	for before != 0 {
		if of := t.row(before); of.Attempt == 0 || of.turn > r.turn {
			break
		}
		before = t.Next(before)
	}
	t.Insert(q, h, before)
}

// First returns the put that is next on a peer's alloc lane, or zero if no put waits for that lane.
func (t *Table[P, R]) First(peer table.Handle) table.Handle { return t.line(peer).first.Front() }

// Unqueue removes a put from the queue for the alloc lane.
func (t *Table[P, R]) Unqueue(h table.Handle) {
	r := t.row(h)
	if of := t.line(r.Peer); r.alone {
		t.Unlink(&of.alone, h)
		r.alone = false
	} else {
		t.Unlink(&of.first, h)
	}
}

// InVain returns a put that waits in vain for a peer without an open link, and the code with which its flow stops the
// put. InVain returns zero if there is none.
func (t *Table[P, R]) InVain(e *flow.Env, peer table.Handle) (table.Handle, effects.Code) {
	h := t.First(peer)
	if h == 0 {
		return 0, effects.OK
	}
	g, cause := e.Links.Outbound(peer).Gate()
	r := t.row(h)
	if !r.inVain(e, g) {
		return 0, effects.OK
	}
	r.BlameAs(cause, e.Links.Outbound(peer).Why())
	return h, cause
}

// Refused handles the refusal of a put. If the code means that the peer has nothing to give for the time being, Refused
// opens the circuit breaker of the peer's address and returns true: the puts that wait behind this put are then to be
// stopped, as LeftAlone says. A peer without memory for this put may have memory for a smaller put; refusals for other
// reasons hold for all puts.
func (r *Row) Refused(e *flow.Env, code effects.Code, said string) bool {
	least := uint32(0)
	if code == effects.NoMemory {
		least = r.chunks
	}
	if !full(code) || r.chunks == 0 ||
		!e.Breakers.Open(e.Now, r.Where, code, said, e.Cfg.Window > 1, least) {
		return false
	}
	e.Out.Mark(Marks.BackedOff)
	return true
}

// LeftAlone returns a put that waits for a peer and for which the peer's circuit breaker is open, whichever put opened
// the breaker. The flow stops the put as BackedOff. LeftAlone returns zero if there is none. The peer may have reported
// that it is full after the put was given, or after the put was sent if the reply was lost. Therefore no put waits for
// a lane while a breaker is open for the put.
func (t *Table[P, R]) LeftAlone(e *flow.Env, peer table.Handle) table.Handle {
	of := t.line(peer)
	if of.opens != e.Breakers.Opens() {
		of.opens = e.Breakers.Opens()
		for h := of.first.Front(); h != 0; {
			r, next := t.row(h), t.Next(h)
			if e.Work.Look(); isLeftAlone(e, r) {
				t.Unlink(&of.first, h)
				t.PushBack(&of.alone, h)
			}
			h = next
		}
	}
	h := of.alone.Front()
	if h != 0 {
		e.Out.Mark(Marks.PeerBackedOff)
	}
	return h
}

// isLeftAlone reports whether a circuit breaker is open for a put. If so, isLeftAlone marks the put to be stopped.
func isLeftAlone(e *flow.Env, r *Row) bool {
	if r.chunks == 0 || !e.Breakers.LeftAlone(e.Now, r.Where, r.chunks) {
		return false
	}
	r.alone, r.NoRoom = true, true
	r.Blame(effects.BackedOff, e.Breakers.Why(r.Where))
	return true
}

// MayStop reports whether this step has work to stop one more of the puts that wait for a peer. If not, the flow is
// signaled for the peer again in the next step, which has work for at least one put; so all of them end.
func (t *Table[P, R]) MayStop(e *flow.Env, h table.Handle) bool {
	r := t.row(h)
	if !e.Work.Left() {
		e.Links.Stir(r.Peer)
		return false
	}
	e.Work.Spend(r.Size())
	return true
}

// MaySend reports whether this step has work to send one more put. If not, the flow is signaled for the peer again in
// the next step. The work is counted when the put is sent.
func (t *Table[P, R]) MaySend(e *flow.Env, h table.Handle) bool {
	if !e.Work.Left() {
		e.Out.Mark(Marks.AsksCut)
		e.Links.Stir(t.row(h).Peer)
		return false
	}
	return true
}

// QueueLast appends a put to the queue for the commit lane, with its final message. over says whether the engine has
// the put's outcome and its memory; Over changes this later.
func (t *Table[P, R]) QueueLast(h table.Handle, over bool) {
	t.PushBack(&t.line(t.row(h).Peer).last, h)
	t.Over(h, over)
}

// Over sets whether the engine of a put in the queue for the commit lane has everything back.
func (t *Table[P, R]) Over(h table.Handle, over bool) {
	r := t.row(h)
	if r.over == over {
		return
	}
	r.over = over
	if over {
		t.line(r.Peer).over++
	} else {
		t.line(r.Peer).over--
	}
}

// UnqueueLast removes a put from the queue for the commit lane.
func (t *Table[P, R]) UnqueueLast(h table.Handle) {
	t.Over(h, false)
	t.Unlink(&t.line(t.row(h).Peer).last, h)
}

// TakeLast removes the first put from the queue for the commit lane and takes the lane for it. TakeLast returns zero if
// the queue is empty or the lane is not free. The link must be up.
func (t *Table[P, R]) TakeLast(e *flow.Env, peer table.Handle) (table.Handle, effects.Conn) {
	q := &t.line(peer).last
	h := q.Front()
	if h == 0 {
		return 0, 0
	}
	conn := e.Links.Take(&e.Env, peer, link.LaneCommit)
	if conn == 0 {
		return 0, 0
	}
	t.UnqueueLast(h)
	return h, conn
}

// Left returns the number of puts that a drain waits for. A put that is over, and only has a final message to send to a
// peer that cannot be reached, is not counted, because the end of the peer's lease has the same effect in time. The
// count is kept for each peer, of which there are at most tables.peers. So no put is visited, however many puts a drain
// finds and however many steps it takes.
func (t *Table[P, R]) Left(e *flow.Env) int {
	left := t.Len()
	for i := range t.lines {
		of := &t.lines[i]
		if of.over == 0 {
			continue
		}
		if state, _ := e.Links.Outbound(t.row(of.last.Front()).Peer).State(); state != link.Ready {
			left -= of.over
		}
	}
	return left
}

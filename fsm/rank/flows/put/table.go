package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Table has the puts of one flow, and the lines in which they wait for the lanes of their peers. Who is in a line
// leaves it before its row ends.
type Table[P any, R Of[P]] struct {
	table.Slab[P]
	lines []line // by the slot of the outbound peer
	sent  uint64 `snap:"skip"` // puts, on alloc lanes
}

// Of is a flow's own row, which has a Row in it.
type Of[P any] interface {
	*P
	Base() *Row
}

// A line is the puts that wait for the lanes of one peer, oldest first.
type line struct {
	first table.List   // to be asked, on the alloc lane
	alone table.List   // no longer to be asked: a breaker has opened for them, and they are to be stopped
	last  table.List   // to say a last word, on the commit lane
	over  int          // of those: whose engine has everything back, so a drain need not wait for a peer out of reach
	lost  effects.Conn `snap:"skip"` // whose end was told last to one that was in flight on it
	// opens is how often breakers had opened when first was last searched for puts that they stop: no other put in it is
	// stopped before one opens again.
	opens uint64 `snap:"skip"`
}

// Emptied has room for so many puts, and a line for each of so many peers, in the memory of t, which is not used any
// more.
func (t *Table[P, R]) Emptied(puts, peers uint32) Table[P, R] {
	return Table[P, R]{Slab: t.Slab.Emptied(int(puts)), lines: table.Zeroed(t.lines, int(peers))}
}

func (t *Table[P, R]) row(h table.Handle) *Row { return R(t.Get(h)).Base() }

func (t *Table[P, R]) line(peer table.Handle) *line { return &t.lines[peer.Slot()] }

// Queue puts a put in line for the alloc lane: at the end, or, if it was sent before, where it stood among those that
// were sent and are back as well.
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

// First is who is next on a peer's alloc lane; zero: nobody waits for it.
func (t *Table[P, R]) First(peer table.Handle) table.Handle { return t.line(peer).first.Front() }

// Unqueue takes a put out of that line.
func (t *Table[P, R]) Unqueue(h table.Handle) {
	r := t.row(h)
	if of := t.line(r.Peer); r.alone {
		t.Unlink(&of.alone, h)
		r.alone = false
	} else {
		t.Unlink(&of.first, h)
	}
}

// InVain is a put that waits for a peer whose gate is not open, and need not any longer: its flow stops it with this
// code. Zero: there is none.
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

// Refused leaves the address of a put's peer alone if that answered that it has nothing to give for the time being, and
// says whether it does: puts that wait behind this one are then to be stopped, as LeftAlone says. A peer that had no
// memory for this put may have some for a smaller one; other refusals hold for all.
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

// LeftAlone returns a put that waits for a peer whose breaker is open for it, whichever put opened it; its flow stops
// it as BackedOff. Zero: there is none. The peer may have said that it is full since the put was given, and since it
// was sent, if its answer was lost: so no put waits for a lane while a breaker is open for it.
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

// isLeftAlone says whether a breaker is open for a put, and notes that it is to be stopped then.
func isLeftAlone(e *flow.Env, r *Row) bool {
	if r.chunks == 0 || !e.Breakers.LeftAlone(e.Now, r.Where, r.chunks) {
		return false
	}
	r.alone, r.NoRoom = true, true
	r.Blame(effects.BackedOff, e.Breakers.Why(r.Where))
	return true
}

// MayStop says whether this step may stop one more of those that wait for a peer; if not, their flow is told of the
// peer again in the next one. That one has work for one at least, so they all end.
func (t *Table[P, R]) MayStop(e *flow.Env, h table.Handle) bool {
	r := t.row(h)
	if !e.Work.Left() {
		e.Links.Stir(r.Peer)
		return false
	}
	e.Work.Spend(r.Size())
	return true
}

// MaySend says whether this step has work to ask or offer one more; if not, its flow is told of the peer again in the
// next one. Who is sent is counted then.
func (t *Table[P, R]) MaySend(e *flow.Env, h table.Handle) bool {
	if !e.Work.Left() {
		e.Out.Mark(Marks.AsksCut)
		e.Links.Stir(t.row(h).Peer)
		return false
	}
	return true
}

// QueueLast puts a put in line for the commit lane, with its last word. over says whether its engine has its outcome,
// and its memory; Over says so later.
func (t *Table[P, R]) QueueLast(h table.Handle, over bool) {
	t.PushBack(&t.line(t.row(h).Peer).last, h)
	t.Over(h, over)
}

// Over says anew whether the engine of a put in that line has all that it is owed.
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

// UnqueueLast takes it out of that line.
func (t *Table[P, R]) UnqueueLast(h table.Handle) {
	t.Over(h, false)
	t.Unlink(&t.line(t.row(h).Peer).last, h)
}

// TakeLast takes the first out of that line if the lane is free, which is its own then. The link is up.
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

// Left counts what a drain waits for. A put that is over, and only has a last word to say to a peer out of reach, is
// none of it: the peer's lease says the same, in time. That is known for each of the peers, of which there are at most
// tables.peers: no put is looked at, however many a drain finds, and in however many steps.
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

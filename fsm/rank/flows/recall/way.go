package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A way is the connection to one peer's query port, with the recalls that wait for their turn on it. One message
// is in flight at a time. The connection stays open for the next recall, and is closed when another peer needs
// the row.
type way struct {
	to      effects.Addr
	conn    link.Conn
	opening bool
	asks    table.List   // the recalls with a query to send
	words   table.List   // the recalls with a done message to send: sent first, because they free memory
	users   uint32       // the number of recalls that have not ended
	failed  effects.Code // why the connection could not be opened, while recalls that waited for it are left
}

// open returns the way to an address, or else a way that can be replaced. ok is false if neither exists and the
// table is full.
func (f *Source) open(to effects.Addr) (way, idle table.Handle, ok bool) {
	for slot := range f.ways.Slots() {
		h := f.ways.At(slot)
		switch w := f.ways.Get(h); {
		case w == nil:
		case w.to == to:
			return h, 0, true
		case idle == 0 && w.users == 0 && !w.opening:
			idle = h
		}
	}
	return 0, idle, idle != 0 || !f.ways.Full()
}

// reach returns the way to an address for one more recall, and inserts a new way if necessary. open must have
// returned true.
func (f *Source) reach(e *flow.Env, to effects.Addr) table.Handle {
	h, idle, _ := f.open(to)
	if h != 0 {
		f.ways.Get(h).users++
		return h
	}
	if f.ways.Full() {
		f.ways.Get(idle).conn.Close(&e.Env)
		f.ways.Remove(idle)
	}
	h, w := f.ways.Add()
	*w = way{to: to, users: 1}
	return h
}

// free reports whether a message can be sent now. If there is no connection, free opens it.
func (f *Source) free(e *flow.Env, h table.Handle) bool {
	w := f.ways.Get(h)
	if w.conn.ID() != 0 || w.opening {
		return w.conn.Ready()
	}
	w.opening = true
	w.conn.Open(&e.Env, e.Corrs.Open(sourceRef(kindOpen, h)), effects.ChannelQuery, w.to)
	return false
}

// opened handles the completion of the opening of a connection. If it failed, the recalls that waited for the
// connection end: the chunks can be computed as well, so no recall waits for a peer that serves no queries.
func (f *Source) opened(e *flow.Env, h table.Handle, ev *effects.Opened) {
	w := f.ways.Get(h)
	w.opening = false
	w.conn.Opened(&e.Env, ev, sourceRef(kindOpen, h))
	w.failed = ev.Code
	f.pump(e, h)
}

// giveUp ends the recalls that waited for a connection that could not be opened, and returns false if some are
// left for the next step. A recall that arrives in the meantime ends in the same way.
func (f *Source) giveUp(e *flow.Env, w *way) bool {
	for x := w.words.Front(); x != 0; x = w.words.Front() { // The end of the lease's time has the same effect.
		if !mayEnd(e, f.rows.Get(x)) {
			return false
		}
		e.Out.Mark(Marks.DoneGivenUp)
		f.rows.Unlink(&w.words, x)
		f.end(e, x, f.rows.Get(x))
	}
	for x := w.asks.Front(); x != 0; x = w.asks.Front() {
		if !mayEnd(e, f.rows.Get(x)) {
			return false
		}
		r := f.rows.Get(x)
		r.Blame(w.failed, notOpened(w.to, w.failed))
		f.stop(e, x, r, w.failed)
	}
	w.failed = effects.OK
	return true
}

// mayEnd reports whether this step has work left to end one more waiting recall. If not, the way is looked at
// again in the next step.
func mayEnd(e *flow.Env, r *row) bool {
	if !e.Work.Left() {
		e.Out.Mark(Marks.EndsCut)
		e.Links.Stir(r.peer)
		return false
	}
	e.Work.Spend(r.size())
	return true
}

// hangUp closes the connection on which the recall's message was sent, so that a late reply cannot be taken for
// the reply to another message (M6).
func (f *Source) hangUp(e *flow.Env, r *row) {
	if w := f.ways.Get(r.way); w.conn.ID() == r.conn {
		w.conn.Close(&e.Env)
	}
	r.conn = 0
}

// lost handles the loss of a connection. A message that was in flight there ends as unanswered, by an event of
// its own.
func (f *Source) lost(e *flow.Env, h table.Handle) {
	f.ways.Get(h).conn.Close(&e.Env)
	f.pump(e, h)
}

// first returns the peer of the recall that waits longest with a query; zero if there is none. While the recalls
// that waited for a failed connection are being ended, recalls with a done message come first.
func (w *way) first(rows *table.Slab[row]) table.Handle {
	for _, q := range [...]*table.List{&w.words, &w.asks} {
		if x := q.Front(); x != 0 && (q == &w.asks || w.failed != effects.OK) {
			return rows.Get(x).peer
		}
	}
	return 0
}

// pump sends the next done message or query of a way, if the way is free. A done message needs no link. A query
// needs the peer's link: it waits while the link may still come up, and its recall ends when the link has failed.
func (f *Source) pump(e *flow.Env, h table.Handle) {
	w := f.ways.Get(h)
	if w.failed != effects.OK && !f.giveUp(e, w) {
		return
	}
	if x := w.words.Front(); x != 0 {
		if f.free(e, h) {
			f.rows.Unlink(&w.words, x)
			f.becomeTelling(e, x)
		}
		return
	}
	for x := w.asks.Front(); x != 0; x = w.asks.Front() {
		r := f.rows.Get(x)
		g, cause := e.Links.Outbound(r.peer).Gate()
		if g == link.GateOpen {
			if !f.free(e, h) {
				return
			}
			f.rows.Unlink(&w.asks, x)
			f.becomeAsking(e, x)
			continue
		}
		if g == link.GateShut || g == link.GateSilent ||
			g == link.GateAbsent && r.reached == e.Links.Outbound(r.peer).Attempt() {
			return
		}
		if !mayEnd(e, f.rows.Get(x)) {
			return
		}
		r.BlameAs(cause, e.Links.Outbound(r.peer).Why())
		f.stop(e, x, r, cause)
	}
}

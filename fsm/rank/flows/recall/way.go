package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A way is the connection to one peer's query port, with the recalls that wait for their turn on it: one question is
// in flight at a time. It stays open for the next recall, and goes when another peer wants its place.
type way struct {
	to      effects.Addr
	conn    link.Conn
	opening bool
	asks    table.List   // recalls that have a question
	words   table.List   // recalls that have a last word: they go first, for they set memory free
	users   uint32       // recalls that are not over
	failed  effects.Code // how its opening ended, while there are some that waited for it
}

// open finds the way to an address, or else one that nobody uses, and says whether there can be one for it at all.
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

// reach finds or makes the way to an address for one more recall. There can be one: open says so.
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

// free says whether a question can go now; if somebody has one, the connection is opened.
func (f *Source) free(e *flow.Env, h table.Handle) bool {
	w := f.ways.Get(h)
	if w.conn.ID() != 0 || w.opening {
		return w.conn.Ready()
	}
	w.opening = true
	w.conn.Open(&e.Env, e.Corrs.Open(sourceRef(kindOpen, h)), effects.ChannelQuery, w.to)
	return false
}

// opened takes the connection, or ends who waited for it: what is recalled can be computed as well, so nobody waits for
// a peer that does not serve questions.
func (f *Source) opened(e *flow.Env, h table.Handle, ev *effects.Opened) {
	w := f.ways.Get(h)
	w.opening = false
	w.conn.Opened(&e.Env, ev, sourceRef(kindOpen, h))
	w.failed = ev.Code
	f.pump(e, h)
}

// giveUp ends who waited for a connection that could not be had, and says whether all have ended. Who comes meanwhile
// waited for it as well.
func (f *Source) giveUp(e *flow.Env, w *way) bool {
	for x := w.words.Front(); x != 0; x = w.words.Front() { // The lease's time ends it as well.
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

// mayEnd says whether this step has work to end one more of those that wait; if not, the way is looked at again in the
// next one.
func mayEnd(e *flow.Env, r *row) bool {
	if !e.Work.Left() {
		e.Out.Mark(Marks.EndsCut)
		e.Links.Stir(r.peer)
		return false
	}
	e.Work.Spend(r.size())
	return true
}

// hangUp closes the connection that a question went on: no late answer can be taken for another one's.
func (f *Source) hangUp(e *flow.Env, r *row) {
	if w := f.ways.Get(r.way); w.conn.ID() == r.conn {
		w.conn.Close(&e.Env)
	}
	r.conn = 0
}

// lost takes the end of the connection. Who has a question on it is told apart.
func (f *Source) lost(e *flow.Env, h table.Handle) {
	f.ways.Get(h).conn.Close(&e.Env)
	f.pump(e, h)
}

// first is the peer of whoever is first on a way; zero if nobody is.
func (w *way) first(rows *table.Slab[row]) table.Handle {
	for _, q := range [...]*table.List{&w.words, &w.asks} {
		if x := q.Front(); x != 0 && (q == &w.asks || w.failed != effects.OK) {
			return rows.Get(x).peer
		}
	}
	return 0
}

// pump lets go on who has a question or a word for the peer, one at a time.
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

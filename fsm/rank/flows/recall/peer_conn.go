package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// A peerConn is the connection to one peer's query port, with the recalls that wait for their turn on it. One message
// is in flight at a time. The connection stays open for the next recall, and is closed when another peer needs
// the row.
type peerConn struct {
	addr         effects.Addr
	conn         link.Conn
	server       effects.Principal // the identity that the connection was opened to; 0: any
	isOpening    bool
	queries      table.List   // the recalls with a query to send
	doneMessages table.List   // the recalls with a done message to send: sent first, because they free memory
	recallCount  uint32       // the number of recalls that have not ended
	openCode     effects.Code // why the connection could not be opened, while recalls that waited for it are left
}

// findConn returns the connection row of an address, or else a row that can be replaced. ok is false if neither exists
// and the table is full.
func (f *Source) findConn(addr effects.Addr) (way, idle table.Handle, ok bool) {
	for slot := range f.conns.Slots() {
		h := f.conns.At(slot)
		switch w := f.conns.Get(h); {
		case w == nil:
		case w.addr == addr:
			return h, 0, true
		case idle == 0 && w.recallCount == 0 && !w.isOpening:
			idle = h
		}
	}
	return 0, idle, idle != 0 || !f.conns.Full()
}

// takeConn returns the connection row of an address for one more recall, and inserts a new row if necessary. findConn
// must have returned true.
func (f *Source) takeConn(e *flow.Env, addr effects.Addr) table.Handle {
	h, idle, _ := f.findConn(addr)
	if h != 0 {
		f.conns.Get(h).recallCount++
		return h
	}
	if f.conns.Full() {
		f.conns.Get(idle).conn.Close(&e.Env)
		f.conns.Remove(idle)
	}
	h, w := f.conns.Add()
	*w = peerConn{addr: addr, recallCount: 1}
	return h
}

// prepareConn reports whether a message can be sent now. If there is no connection, prepareConn opens it. If server is not
// zero, the message is only for a server with that identity, and a connection to another one is replaced when it is free.
func (f *Source) prepareConn(e *flow.Env, h table.Handle, server effects.Principal) bool {
	w := f.conns.Get(h)
	if w.conn.CanSend() && server != 0 && server != w.server {
		e.Out.Mark(Marks.ServerChanged)
		w.conn.Close(&e.Env)
	}
	if w.conn.ID() != 0 || w.isOpening {
		return w.conn.CanSend()
	}
	w.isOpening, w.server = true, server
	w.conn.OpenSingle(&e.Env, e.Corrs.Open(sourceRef(kindOpen, h)), effects.ChannelQuery, w.addr, server)
	return false
}

// onOpened handles the completion of the opening of a connection. If it failed, the recalls that waited for the
// connection end: the chunks can be computed as well, so no recall waits for a peer that serves no queries.
func (f *Source) onOpened(e *flow.Env, h table.Handle, ev *effects.Opened) {
	w := f.conns.Get(h)
	w.isOpening = false
	w.conn.OnOpened(&e.Env, ev, sourceRef(kindOpen, h))
	w.openCode = ev.Code
	f.sendQueued(e, h)
}

// failQueued ends the recalls that waited for a connection that could not be opened, and returns false if some are
// left for the next step. A recall that arrives in the meantime ends in the same way.
func (f *Source) failQueued(e *flow.Env, w *peerConn) bool {
	for x := w.doneMessages.Front(); x != 0; x = w.doneMessages.Front() { // The end of the lease's time has the same effect.
		if !hasWorkToEnd(e, f.rows.Get(x)) {
			return false
		}
		e.Out.Mark(Marks.DoneGivenUp)
		f.rows.Unlink(&w.doneMessages, x)
		f.removeRecall(e, x, f.rows.Get(x))
	}
	for x := w.queries.Front(); x != 0; x = w.queries.Front() {
		if !hasWorkToEnd(e, f.rows.Get(x)) {
			return false
		}
		r := f.rows.Get(x)
		r.SetReason(w.openCode, notOpenedReason(w.addr, w.openCode))
		f.failRecall(e, x, r, w.openCode)
	}
	w.openCode = effects.OK
	return true
}

// hasWorkToEnd reports whether this step has work left to end one more waiting recall. If not, the connection is looked at
// again in the next step.
func hasWorkToEnd(e *flow.Env, r *recallRow) bool {
	if !e.Work.HasBudget() {
		e.Out.Mark(Marks.EndsCut)
		e.Links.MarkChanged(r.peer)
		return false
	}
	e.Work.SpendRows(r.keyCount())
	return true
}

// closeConn closes the connection on which the recall's message was sent, so that a late reply cannot be taken for
// the reply to another message (M6).
func (f *Source) closeConn(e *flow.Env, r *recallRow) {
	if w := f.conns.Get(r.peerConn); w.conn.ID() == r.conn {
		w.conn.Close(&e.Env)
	}
	r.conn = 0
}

// onConnLost handles the loss of a connection. A message that was in flight there ends as unanswered, by an event of
// its own.
func (f *Source) onConnLost(e *flow.Env, h table.Handle) {
	f.conns.Get(h).conn.Close(&e.Env)
	f.sendQueued(e, h)
}

// firstPeer returns the peer of the recall that waits longest with a query; zero if there is none. While the recalls
// that waited for a failed connection are being ended, recalls with a done message come first.
func (w *peerConn) firstPeer(rows *table.Slab[recallRow]) table.Handle {
	for _, q := range [...]*table.List{&w.doneMessages, &w.queries} {
		if x := q.Front(); x != 0 && (q == &w.queries || w.openCode != effects.OK) {
			return rows.Get(x).peer
		}
	}
	return 0
}

// sendQueued sends the next done message or query of a connection, if the connection is free. A done message needs no link. A query
// needs the peer's link: it waits while the link may still come up, and its recall ends when the link has failed.
func (f *Source) sendQueued(e *flow.Env, h table.Handle) {
	w := f.conns.Get(h)
	if w.openCode != effects.OK && !f.failQueued(e, w) {
		return
	}
	if x := w.doneMessages.Front(); x != 0 {
		if f.prepareConn(e, h, 0) { // It names no chunk.
			f.rows.Unlink(&w.doneMessages, x)
			f.sendDone(e, x)
		}
		return
	}
	for x := w.queries.Front(); x != 0; x = w.queries.Front() {
		r := f.rows.Get(x)
		g, cause := e.Links.Outbound(r.peer).Gate()
		if g == link.GateOpen {
			if !f.prepareConn(e, h, e.Links.IncarnationOf(r.peer).Principal()) {
				return
			}
			f.rows.Unlink(&w.queries, x)
			f.sendQuery(e, x)
			continue
		}
		if g == link.GateShut || g == link.GateSilent ||
			g == link.GateAbsent && r.linkAttempt == e.Links.Outbound(r.peer).AttemptNumber() {
			return
		}
		if !hasWorkToEnd(e, f.rows.Get(x)) {
			return
		}
		r.SetSharedReason(cause, e.Links.Outbound(r.peer).FailureReason())
		f.failRecall(e, x, r, cause)
	}
}

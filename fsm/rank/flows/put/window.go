package put

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Several puts may be in flight on an alloc lane, up to the window that both ends allow. Each request ends with its own
// reply. The end of the connection ends all requests on it, and their puts return to their previous positions in the
// queue.

// MayAsk reports whether one more put may be sent to a peer if the peer's lane has room. While the circuit breaker is
// half-open, the trial request must be alone in flight.
func MayAsk(e *flow.Env, peer table.Handle) bool {
	return !e.Breakers.OnTrial(e.Links.Outbound(peer).Where()) || e.Links.Lane(peer, link.LaneAlloc).InFlight() == 0
}

// Tries counts one more attempt to get a reply for a put.
func (t *Table[P, R]) Tries(r *Row) {
	r.Failed++
	if r.Attempt++; r.Attempt == 1 {
		t.sent++
		r.turn = t.sent
	}
}

// Charge handles the end of a put's connection without a reply. Of all puts in flight on the connection only the
// oldest, which the driver reports first, loses an attempt, because the oldest request is the request that got no
// reply. The remaining puts only shared its connection.
func (t *Table[P, R]) Charge(r *Row) {
	q := t.line(r.Peer)
	if r.Conn == q.lost {
		r.Failed--
	}
	q.lost = r.Conn
}

// Overdue handles the timeout of a reply. If nothing arrived on the put's connection for ReplyTimeout, Overdue closes
// the connection, so that no late reply can be taken for the reply to another request; all requests on the connection
// then end as unanswered. If anything did arrive, the put waits for ReplyTimeout from then on.
func (r *Row) Overdue(e *flow.Env, lane link.Lane, ref kernel.Ref) {
	r.answer = 0
	if heard := e.Links.Lane(r.Peer, lane).Heard(r.Conn); heard != 0 && e.Now < heard.Add(e.Cfg.ReplyTimeout) {
		e.Timers.Set(&r.answer, heard.Add(e.Cfg.ReplyTimeout), ref)
		return
	}
	e.Out.Mark(Marks.AnswerOverdue)
	r.HangUp(e, lane)
}

// Answered handles a reply: it stops the timer and frees the lane for the next request.
func (r *Row) Answered(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.answer)
	e.Links.Untake(&e.Env, r.Peer, lane, r.Conn)
}

// Unanswered handles the end of a request without a reply: it stops the timer and closes the lane, so that no reply can
// arrive late.
func (r *Row) Unanswered(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.answer)
	r.HangUp(e, lane)
}

// Base returns the row itself. A flow's own row type embeds Row and so implements Of.
func (r *Row) Base() *Row { return r }

package put

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Several puts may be in flight on an alloc lane, as many as both ends said. Each ends by its own answer; what ends
// their connection ends all of them, and they stand in line again as they stood before.

// MayAsk says whether one more put may be sent to a peer whose lane has room: not beside the trial that follows a
// breaker, nor before what was in flight then has ended.
func MayAsk(e *flow.Env, peer table.Handle) bool {
	return !e.Breakers.OnTrial(e.Links.Outbound(peer).Where()) || e.Links.Lane(peer, link.LaneAlloc).InFlight() == 0
}

// Tries counts one more try to have a put answered.
func (t *Table[P, R]) Tries(r *Row) {
	r.Failed++
	if r.Attempt++; r.Attempt == 1 {
		t.sent++
		r.turn = t.sent
	}
}

// Charge is told that the put's connection has ended without an answer. Of all that were in flight there the oldest,
// which a driver tells first, has lost an attempt: it is what no answer came to. The others only shared its connection.
func (t *Table[P, R]) Charge(r *Row) {
	q := t.line(r.Peer)
	if r.Conn == q.lost {
		r.Failed--
	}
	q.lost = r.Conn
}

// Overdue closes the put's connection if nothing has come on it for ReplyTimeout: so no late answer can be taken for
// another one's. All questions there then end as unanswered. If anything came, the put waits for as long again.
func (r *Row) Overdue(e *flow.Env, lane link.Lane, ref kernel.Ref) {
	r.answer = 0
	if heard := e.Links.Lane(r.Peer, lane).Heard(r.Conn); heard != 0 && e.Now < heard.Add(e.Cfg.ReplyTimeout) {
		e.Timers.Set(&r.answer, heard.Add(e.Cfg.ReplyTimeout), ref)
		return
	}
	e.Out.Mark(Marks.AnswerOverdue)
	r.HangUp(e, lane)
}

// Answered takes the put's answer off its lane, which is free for the next question; Unanswered does where none came,
// and closes the lane, so that none can come late.
func (r *Row) Answered(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.answer)
	e.Links.Untake(&e.Env, r.Peer, lane, r.Conn)
}

// Unanswered takes the end of a question to which no answer came.
func (r *Row) Unanswered(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.answer)
	r.HangUp(e, lane)
}

// Base is the row itself, which each flow has in its own.
func (r *Row) Base() *Row { return r }

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

// MayRequest reports whether one more put may be sent to a peer if the peer's lane has room. While the circuit breaker
// is half-open, the trial request must be alone in flight.
func MayRequest(e *flow.Env, peer table.Handle) bool {
	return !e.Breakers.HasTrial(e.Links.Outbound(peer).Addr()) || e.Links.Lane(peer, link.LaneAlloc).InFlight() == 0
}

// CountAttempt counts one more attempt to get a reply for a put.
func (t *Table[P, R]) CountAttempt(r *Row) {
	r.Failures++
	if r.Attempt++; r.Attempt == 1 {
		t.sentCount++
		r.sendOrder = t.sentCount
	}
}

// ChargeConnLoss handles the end of a put's connection without a reply. Of all puts in flight on the connection only
// the oldest, which the driver reports first, loses an attempt, because the oldest request is the request that got no
// reply. The remaining puts only shared its connection.
func (t *Table[P, R]) ChargeConnLoss(r *Row) {
	q := t.queuesOf(r.Peer)
	if r.Conn == q.chargedConn {
		r.Failures--
	}
	q.chargedConn = r.Conn
}

// OnReplyTimeout handles the timeout of a reply. If nothing arrived on the put's connection for ReplyTimeout,
// OnReplyTimeout closes the connection, so that no late reply can be taken for the reply to another request; all
// requests on the connection then end as unanswered. If anything did arrive, the put waits for ReplyTimeout from then
// on.
func (r *Row) OnReplyTimeout(e *flow.Env, lane link.Lane, ref kernel.Ref) {
	r.replyTimer = 0
	if lastReply := e.Links.Lane(r.Peer, lane).LastReply(r.Conn); lastReply != 0 && e.Now < lastReply.Add(e.Cfg.ReplyTimeout) {
		e.Timers.Set(&r.replyTimer, lastReply.Add(e.Cfg.ReplyTimeout), ref)
		return
	}
	e.Out.Mark(Marks.AnswerOverdue)
	r.CloseLane(e, lane)
}

// OnReplied handles a reply: it stops the timer and frees the lane for the next request.
func (r *Row) OnReplied(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.replyTimer)
	e.Links.ReleaseLane(&e.Env, r.Peer, lane, r.Conn)
}

// OnUnanswered handles the end of a request without a reply: it stops the timer and closes the lane, so that no reply
// can arrive late.
func (r *Row) OnUnanswered(e *flow.Env, lane link.Lane) {
	e.Timers.Stop(&r.replyTimer)
	r.CloseLane(e, lane)
}

// BaseRow returns the row itself. A flow's own row type embeds Row and so implements RowOf.
func (r *Row) BaseRow() *Row { return r }

package sender

import (
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Several puts may be in flight on an alloc lane, as many as both ends said. Each ends by its own answer; what ends
// their connection ends all of them, and they stand in line again as they stood before.

// mayAsk says whether one more put may be sent to a peer whose lane has room: not beside the trial that follows a
// breaker, nor before what was in flight then has ended.
func (e *step) mayAsk(peer table.Handle) bool {
	return !e.breakers.OnTrial(e.links.Outbound(peer).Where()) || e.links.Lane(peer, link.LaneAlloc).InFlight() == 0
}

// tries counts one more try to have a put answered.
func (r *row) tries(q *queues) {
	r.failed++
	if r.attempt++; r.attempt == 1 {
		q.sent++
		r.turn = q.sent
	}
}

// charge is told that the put's connection has ended without an answer. Of all that were in flight there the oldest,
// which a driver tells first, has lost an attempt: it is what no answer came to. The others only shared its connection.
func (r *row) charge(q *queue) {
	if r.conn == q.lost {
		r.failed--
	}
	q.lost = r.conn
}

// overdue closes the put's connection if nothing has come on it for ReplyTimeout: so no late answer can be taken for
// another one's. All questions there then end as unanswered. If anything came, the put waits for as long again.
func (r *row) overdue(e *step, lane link.Lane, ref kernel.Ref) {
	if heard := e.links.Lane(r.peer, lane).Heard(r.conn); heard != 0 && e.Now < heard.Add(e.cfg.ReplyTimeout) {
		e.Timers.Set(&r.answer, heard.Add(e.cfg.ReplyTimeout), ref)
		return
	}
	e.Out.Mark(MarkAnswerOverdue)
	r.hangUp(e, lane)
}

func (r *row) base() *row { return r }

// A flowRow is a flow's own row.
type flowRow[P any] interface {
	*P
	base() *row
}

// again puts a put back to the front of its queue, behind those that were sent before it and are back as well.
func again[P any, R flowRow[P]](puts *table.Slab[P], queue *table.List, h table.Handle) {
	turn, before := R(puts.Get(h)).base().turn, queue.Front()
	for before != 0 {
		if r := R(puts.Get(before)).base(); r.attempt == 0 || r.turn > turn {
			break
		}
		before = puts.Next(before)
	}
	puts.Insert(queue, h, before)
}

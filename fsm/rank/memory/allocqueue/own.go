package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Own is the fairness class of this rank's engine. In a rank with both roles the pages that the engine reserves come
// from the same pool as the pages that peers request. Therefore the engine's oldest waiting reservation counts as the
// head of a class, which has a turn, is passed, and passes. The reservation itself waits with the engine's commands,
// which are notified when the turn has come. In a rank with one role no request has this class.
const Own = 0

// An ownHead is the engine's oldest waiting reservation.
type ownHead struct {
	h        table.Handle // the handle in the table of commands
	pages    uint32
	bypassed uint32
}

// NoteOwn records the engine's oldest waiting reservation and the number of pages that the reservation needs; a zero
// handle means that none waits. A reservation that has just become the oldest was not passed yet: passes were counted
// against the earlier reservations.
func (p *Pending) NoteOwn(h table.Handle, pages uint32) {
	if p.own.h != h {
		p.own = ownHead{h: h, pages: pages}
	}
}

// PassedByOwn counts a pass by the engine against the heads of all other classes.
func (p *Pending) PassedByOwn(v *env.Env) { p.Passed(v, Own) }

// A head is the first request of a class.
type head struct {
	pages    uint32
	bypassed *uint32
}

// head returns the head of a class, and false if no request of the class waits.
func (p *Pending) head(class int) (head, bool) {
	if class == Own {
		return head{pages: p.own.pages, bypassed: &p.own.bypassed}, p.own.h != 0
	}
	h := p.queues[class].Front()
	if h == 0 {
		return head{}, false
	}
	q := p.rows.Get(h)
	return head{pages: q.Keys, bypassed: &q.bypassed}, true
}

// Waits reports whether any request or reservation waits.
func (p *Pending) Waits() bool { return p.rows.Len() > 0 || p.own.h != 0 }

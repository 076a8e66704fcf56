package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// EngineClass is the fairness class of this rank's engine. In a rank with both roles the pages that the engine reserves
// come from the same pool as the pages that peers request. Therefore the engine's oldest waiting reservation counts as
// the head of a class, which has a turn, is passed, and passes. The reservation itself waits with the engine's
// commands, which are notified when the turn has come. In a rank with one role no request has this class.
const EngineClass = 0

// An engineHead is the engine's oldest waiting reservation.
type engineHead struct {
	reservation table.Handle // the handle in the table of commands
	pages       uint32
	passes      passCounts
}

// SetEngineHead records the engine's oldest waiting reservation and the number of pages that the reservation needs; a
// zero handle means that none waits. A reservation that has just become the oldest was not passed yet: passes were
// counted against the earlier reservations.
func (p *Queue) SetEngineHead(h table.Handle, pages uint32) {
	if p.engineHead.reservation != h {
		p.engineHead = engineHead{reservation: h, pages: pages}
	}
}

// CountEnginePass records that the engine took pages: the engine had its turn, and passed the heads of all other classes.
func (p *Queue) CountEnginePass(v *env.Env) { p.CountPass(v, EngineClass) }

// HasWaiting reports whether any request or reservation waits.
func (p *Queue) HasWaiting() bool { return p.rows.Len() > 0 || p.engineHead.reservation != 0 }

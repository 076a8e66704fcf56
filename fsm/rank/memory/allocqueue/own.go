package allocqueue

import (
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Own is the class of our own engine. In a rank of both sides what its engine reserves comes from the pages that peers
// ask for, so its oldest reservation stands in this line as a head like any other: it has its turn, is passed and
// passes. It waits in the engine's room, which is told when its turn has come. In a rank of one side nobody is of this
// class.
const Own = 0

// An ownHead is the engine's oldest reservation that waits.
type ownHead struct {
	h        table.Handle // the engine's
	pages    uint32
	bypassed uint32
}

// NoteOwn notes which reservation of our engine is the oldest that waits, and for how many pages; zero: none is. One
// that is first now was not passed yet: those before it were.
func (p *Pending) NoteOwn(h table.Handle, pages uint32) {
	if p.own.h != h {
		p.own = ownHead{h: h, pages: pages}
	}
}

// PassedByOwn counts, against those whose turn comes later, that our engine was served.
func (p *Pending) PassedByOwn(v *env.Env) { p.Passed(v, Own) }

// A head is what stands first of a class.
type head struct {
	pages    uint32
	bypassed *uint32
}

// head is that of a class, and whether it has one.
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

// Waits says whether anybody does.
func (p *Pending) Waits() bool { return p.rows.Len() > 0 || p.own.h != 0 }

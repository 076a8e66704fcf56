package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A fate is whether an offer is condemned: with all of its class that were there, or alone.
type fate struct {
	born kernel.Birth
	gone effects.Code // it is condemned alone, and ends as this
}

// Lose condemns the offers of a class: there is no way to its pages.
func (d *Deferred) Lose(class int) { d.losses.Add(class) }

// Lost says that an offer is condemned: nothing that begins is read of it.
func (d *Deferred) Lost(o *Kept) bool { return o.gone != effects.OK || d.losses.Over(o.Class, o.born) }

// Condemn condemns one offer, of which as many fetches may want to read as there are.
func (d *Deferred) Condemn(h table.Handle, code effects.Code) {
	if o := d.rows.Get(h); o.gone == effects.OK {
		o.gone = code
		d.rows.PushBack(&d.condemned, h)
	}
}

// Condemned is the first of those that were condemned one by one, and why; zero if there is none.
func (d *Deferred) Condemned() (table.Handle, effects.Code) {
	h := d.condemned.Front()
	if h == 0 {
		return 0, effects.OK
	}
	return h, d.rows.Get(h).gone
}

// Executed says that what was to end with a condemned offer has ended.
func (d *Deferred) Executed(h table.Handle) {
	if o := d.rows.Get(h); o != nil && o.gone != effects.OK {
		o.gone = effects.OK
		d.rows.Unlink(&d.condemned, h)
	}
}

// ChunksOf is how many an offer came with; 0 of one that is gone.
func (d *Deferred) ChunksOf(h table.Handle) int {
	if o := d.rows.Get(h); o != nil {
		return len(o.items)
	}
	return 0
}

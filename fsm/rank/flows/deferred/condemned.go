package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A fate records whether an offer is condemned: together with all offers of its class that were kept at the time,
// or alone.
type fate struct {
	born kernel.Birth
	gone effects.Code // the offer is condemned alone, and ends with this code
}

// Lose condemns the present offers of a class, because their pages cannot be reached.
func (d *Deferred) Lose(class int) { d.losses.Add(class) }

// Lost reports whether an offer is condemned, so that no new read may begin.
func (d *Deferred) Lost(o *Kept) bool { return o.gone != effects.OK || d.losses.Over(o.Class, o.born) }

// Condemn condemns one offer. The fetches that read from the offer are ended over several steps, because there
// may be any number of fetches.
func (d *Deferred) Condemn(h table.Handle, code effects.Code) {
	if o := d.rows.Get(h); o.gone == effects.OK {
		o.gone = code
		d.rows.PushBack(&d.condemned, h)
	}
}

// Condemned returns the first offer that was condemned alone, and the code; zero if there is none.
func (d *Deferred) Condemned() (table.Handle, effects.Code) {
	h := d.condemned.Front()
	if h == 0 {
		return 0, effects.OK
	}
	return h, d.rows.Get(h).gone
}

// Executed records that all that was to end with a condemned offer has ended.
func (d *Deferred) Executed(h table.Handle) {
	if o := d.rows.Get(h); o != nil && o.gone != effects.OK {
		o.gone = effects.OK
		d.rows.Unlink(&d.condemned, h)
	}
}

// ChunksOf returns the number of chunks with which an offer arrived, or 0 if the offer is gone.
func (d *Deferred) ChunksOf(h table.Handle) int {
	if o := d.rows.Get(h); o != nil {
		return len(o.items)
	}
	return 0
}

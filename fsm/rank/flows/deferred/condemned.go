package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A condemnation records whether an offer is condemned: together with all offers of its class that were kept at the
// time, or alone.
type condemnation struct {
	lossCount     kernel.LossCount
	condemnedCode effects.Code // the offer is condemned alone, and ends with this code
}

// CondemnClass condemns the present offers of a class, because their pages cannot be reached.
func (d *Offers) CondemnClass(class int) { d.losses.CondemnRows(class) }

// IsCondemned reports whether an offer is condemned, so that no new read may begin.
func (d *Offers) IsCondemned(o *Offer) bool {
	return o.condemnedCode != effects.OK || d.losses.IsCondemned(o.Class, o.lossCount)
}

// CondemnOffer condemns one offer. The fetches that read from the offer are ended over several steps, because there
// may be any number of fetches.
func (d *Offers) CondemnOffer(h table.Handle, code effects.Code) {
	if o := d.rows.Get(h); o.condemnedCode == effects.OK {
		o.condemnedCode = code
		d.rows.PushBack(&d.condemned, h)
	}
}

// FirstCondemned returns the first offer that was condemned alone, and the code; zero if there is none.
func (d *Offers) FirstCondemned() (table.Handle, effects.Code) {
	h := d.condemned.Front()
	if h == 0 {
		return 0, effects.OK
	}
	return h, d.rows.Get(h).condemnedCode
}

// FinishCondemned records that all that was to end with a condemned offer has ended.
func (d *Offers) FinishCondemned(h table.Handle) {
	if o := d.rows.Get(h); o != nil && o.condemnedCode != effects.OK {
		o.condemnedCode = effects.OK
		d.rows.Unlink(&d.condemned, h)
	}
}

// CountChunks returns the number of chunks with which an offer arrived, or 0 if the offer is gone.
func (d *Offers) CountChunks(h table.Handle) int {
	if o := d.rows.Get(h); o != nil {
		return len(o.items)
	}
	return 0
}

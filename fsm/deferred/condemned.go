package deferred

import "github.com/kvferry/kvferry/fsm/table"

// Lose condemns the offers of a class: there is no way to its pages.
func (d *Deferred) Lose(class int) { d.losses.Add(class) }

// Lost says that an offer is condemned: nothing that begins is read of it.
func (d *Deferred) Lost(o *Kept) bool { return d.losses.Over(o.Class, o.born) }

// ChunksOf is how many an offer came with; 0 of one that is gone.
func (d *Deferred) ChunksOf(h table.Handle) int {
	if o := d.rows.Get(h); o != nil {
		return len(o.items)
	}
	return 0
}

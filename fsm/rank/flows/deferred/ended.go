package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// An End is an offer that has ended: nothing of it is left, and nobody reads it.
type End struct {
	Class     int
	Operation uint64
	Address   table.Handle
	Over      effects.Time
	By        table.Handle // who asked for it
	Done
}

// A Done says that an offer is not read any more.
type Done struct {
	Pull    [16]byte
	Us      effects.Incarnation // who we are to its sender
	To      effects.Incarnation
	Grant   uint64
	Code    effects.Code
	Missing uint32
}

// maybeOver ends an offer that nothing of is left, and that nobody reads: only then are the pages its sender's again.
func (d *Deferred) maybeOver(v *env.Env, h table.Handle, o *Kept) {
	if o.Left > 0 || o.readers > 0 {
		return
	}
	v.Timers.Stop(&o.timer)
	d.Executed(h)
	end := End{
		Class: o.Class, Operation: o.Operation, Address: o.Address, Over: o.Over, By: o.Asked.By,
		Done: Done{Pull: o.Pull, Us: o.Us, To: o.Peer, Grant: o.Grant, Code: o.Code, Missing: o.missing},
	}
	if d.of[o.Class].offers--; o.Asked.Of != 0 {
		d.returned = append(d.returned, end)
	} else {
		d.ended = append(d.ended, end)
		d.byOperation.Remove(table.Hash(o.Operation, o.Peer[:]), h)
	}
	o.items, o.Already = table.Shed(o.items), table.Shed(o.Already)
	d.rows.Remove(h)
}

// Over are the offers that ended since heardOver, in their order.
func (d *Deferred) Over() []End { return d.ended }

// HeardOver says that all of them were told.
func (d *Deferred) HeardOver() { d.ended = d.ended[:0] }

// Returned are those that ended since HeardReturned of what we asked for.
func (d *Deferred) Returned() []End { return d.returned }

// HeardReturned says that who asked has heard of them.
func (d *Deferred) HeardReturned() { d.returned = d.returned[:0] }

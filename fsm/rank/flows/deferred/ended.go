package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// An End describes an offer that has ended: no chunk is left, and no fetch is reading.
type End struct {
	Class int
	// Operation, Address and Over are those of the offer; see Kept.
	Operation uint64
	Address   table.Handle
	Over      effects.Time
	By        table.Handle // the row of the requester, if this rank requested the chunks
	Done
}

// A Done holds the contents of a done message, which reports that an offer is not read any more.
type Done struct {
	Pull  [16]byte
	Us    effects.Incarnation // the incarnation of this rank that the sender knows
	To    effects.Incarnation
	Grant uint64
	Code  effects.Code
	// Missing is the number of chunks that left without having been read for their request.
	Missing uint32
}

// maybeOver ends an offer if no chunk is left and no fetch is reading. Invariant: only then are the pages the
// sender's own again (M2).
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

// Over returns the offers that ended since the last HeardOver, in order.
func (d *Deferred) Over() []End { return d.ended }

// HeardOver clears the list of Over, when all senders have been notified.
func (d *Deferred) HeardOver() { d.ended = d.ended[:0] }

// Returned returns the prefixes requested by this rank that ended since the last HeardReturned.
func (d *Deferred) Returned() []End { return d.returned }

// HeardReturned clears the list of Returned, when all requesters have been notified.
func (d *Deferred) HeardReturned() { d.returned = d.returned[:0] }

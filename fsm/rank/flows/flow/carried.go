package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Carrier transports chunks for other flows, as puts of its own. The puts have the Carrier's retries, leases and done
// messages.
type Carrier interface {
	// Carry starts a put. Room must have returned true. The results are appended to Env.Told for the row that c.For
	// names: the outcome once, and the return of the memory once, with the outcome or later. Both may happen within the
	// same step.
	Carry(e *Env, c *Carried) table.Handle
	// Room reports whether one more put can be carried.
	Room() bool
	// Stop ends a put that has no outcome yet.
	Stop(e *Env, h table.Handle)
}

// A Carried describes a put that another flow, not the engine, requests. Its contents are not checked again.
type Carried struct {
	Put     engine.Put
	For     kernel.Ref
	Request table.Handle // as engine.Enter returned it
	Layers  uint32       // layers of a chunk, each of which has a page
	// Whole means that the keys name chunks, all layers of which are in Pages, in order. Otherwise the keys name
	// layers.
	Whole bool
	Epoch uint32
	// Opened is the grant under which the first layers of these chunks arrived; 0: none have arrived yet.
	Opened effects.GrantID
}

// A Told reports what became of a carried put.
type Told struct {
	For kernel.Ref
	// Returned means that the put's memory is back after an outcome with Held. Otherwise this is the outcome itself.
	Returned bool
	Code     effects.Code
	Held     bool
	// NoRoom means that the peer has no room for the put now but may have later. None of the put was sent.
	NoRoom  bool
	Why     *effects.Why
	Grant   effects.GrantID // under which the pages were sent; 0: none had to be
	Already []uint32        // indices of pages; the peer had their chunks already
}

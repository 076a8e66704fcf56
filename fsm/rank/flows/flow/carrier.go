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
	// StartCarriedPut starts a put. HasRoom must have returned true. The results are appended to Env.CarriedResults for
	// the row that c.Requester names: the outcome once, and the return of the memory once, with the outcome or later.
	// Both may happen within the same step.
	StartCarriedPut(e *Env, c *CarriedPut) table.Handle
	// HasRoom reports whether one more put can be carried.
	HasRoom() bool
	// StopCarriedPut ends a put that has no outcome yet.
	StopCarriedPut(e *Env, h table.Handle)
}

// A CarriedPut describes a put that another flow, not the engine, requests. Its contents are not checked again.
type CarriedPut struct {
	Put       engine.Put
	Requester kernel.Ref
	Request   table.Handle // as Engine.JoinRequest returned it
	Layers    uint32       // layers of a chunk, each of which has a page
	// WholeChunks means that the keys name chunks, all layers of which are in Pages, in order. Otherwise the keys name
	// layers.
	WholeChunks bool
	Epoch       uint32
	// OpeningGrant is the grant under which the first layers of these chunks arrived; 0: none have arrived yet.
	OpeningGrant effects.GrantID
	// QueuedAt is when the first of the pages began to wait, and ReadyBefore for how long the link to the peer had been up in
	// total by then (link.Outbound.ReadyTime). The report of the put begins there.
	QueuedAt    effects.Time
	ReadyBefore effects.Duration
}

// A CarriedResult reports what became of a carried put.
type CarriedResult struct {
	Requester kernel.Ref
	// Returned means that the put's memory is back after an outcome with Held. Otherwise this is the outcome itself.
	Returned bool
	Code     effects.Code
	Held     bool
	// NoRoom means that the peer has no room for the put now but may have later. None of the put was sent.
	NoRoom       bool
	Why          *effects.Why
	Grant        effects.GrantID // under which the pages were sent; 0: none had to be
	PresentPages []uint32        // indices of pages; the peer had their chunks already
}

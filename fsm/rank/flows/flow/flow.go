package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Flow is what a rank asks of each. What a flow is never asked for panics.
type Flow interface {
	// Step takes what drivers tell: a command or a message, of an empty Ref, or what became of the effect or of the
	// grant that Ref was given for.
	Step(e *Env, ref kernel.Ref, ev effects.Event)
	// Due takes a deadline, which is in no timer any more.
	Due(e *Env, ref kernel.Ref)
	// Signal takes what rooms tell; Ref is the row's, or has the outbound peer as its subject if that Changed.
	Signal(e *Env, ref kernel.Ref, s Signal)
	Cold
}

// Cold is what a rank asks of a flow seldom.
type Cold interface {
	// Abort ends what an engine's ticket stands for early, and says whether there was anything to end.
	Abort(e *Env, ref kernel.Ref) bool
	// Left counts what a drain waits for.
	Left(e *Env) int
	// Tables shows what is in the tables that are the flow's alone.
	Tables(visit table.Visit)
	// State is where the row of a Ref stands, as a number of the flow's own; it decides nothing.
	State(r *Rooms, ref kernel.Ref) uint16
}

// A Target is a flow whose peers' requests wait here for pages.
type Target interface {
	Flow
	// Try serves one whose turn it is, if it can be now, or says what it lacks.
	Try(e *Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall)
}

// A Lender is a flow that leases pages whose readers may ask for more time.
type Lender interface {
	Flow
	// Lease is that of the row that a read grant is for.
	Lease(ref kernel.Ref) *lease.Owner
	// Extend gives it more time.
	Extend(e *Env, ref kernel.Ref) (lease.Extended, effects.Duration)
}

// A Signal is what a room tells a flow of one of its rows. It is a struct, so that nothing is allocated for it.
type Signal struct {
	Kind  SignalKind
	Class int          // of a peer that was reached
	Code  effects.Code // why
	Why   *effects.Why // in words, of what is refused or was not reached
}

// SignalKind says what happened.
type SignalKind uint8

// The kinds.
const (
	Changed    SignalKind = iota + 1 // whoever waits for this outbound peer is to look again
	LeaseEnded                       // a reader reads no more under this lease
	Reached                          // the link to the pages of a class is there, or cannot be had
	Refused                          // a request that waits for pages waits in vain: it is to be answered and removed
	Ended                            // a landing is to end for a reason of ours
)

package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Flow is the interface that every flow implements. The rank registers its flows in a fixed order, and calls them in
// that order. By type assertion the rank finds which of these interfaces a flow implements in addition: [Commander],
// [Server], [Target], [Lender], [ClassKeeper], [Busier], [LinkWaiter], [PeerWatcher], [LossSweeper], [DrainSweeper] and
// [Continuer].
type Flow interface {
	// Step handles the completion of the effect, or the end of the grant, for which ref was given.
	Step(e *Env, ref kernel.Ref, ev effects.Event)
	// Due handles a deadline that has passed. Its timer is already removed.
	Due(e *Env, ref kernel.Ref)
	// Signal handles a notification from a room. ref names the flow's row, or the outbound peer if the signal is
	// Changed.
	Signal(e *Env, ref kernel.Ref, s Signal)
	Cold
}

// Cold contains the methods of a Flow that a rank calls rarely.
type Cold interface {
	// Abort ends the command that an engine's ticket stands for early, and reports whether there was anything to end.
	Abort(e *Env, ref kernel.Ref) bool
	// Left returns the number of the flow's rows that a drain waits for.
	Left(e *Env) int
	// Tables visits the tables that belong to the flow alone.
	Tables(visit table.Visit)
	// State returns the state of a row as a number of the flow's own. State is for statistics; no decision depends on
	// it.
	State(r *Rooms, ref kernel.Ref) uint16
}

// Passive has the methods of a Flow that has no timers, no tickets and no tables of its own, and receives no signals. A
// flow of this kind embeds Passive.
type Passive struct{}

// Due panics, because the flow has set no timer.
func (Passive) Due(*Env, kernel.Ref) { kernel.Foreign("a flow without timers") }

// Signal panics, because the flow has no rows of which a room could notify it.
func (Passive) Signal(*Env, kernel.Ref, Signal) { kernel.Foreign("a flow without rows in rooms") }

// Abort returns false: no command of the engine is open here.
func (Passive) Abort(*Env, kernel.Ref) bool { return false }

// Left returns 0, because a drain waits for nothing here.
func (Passive) Left(*Env) int { return 0 }

// Tables visits nothing.
func (Passive) Tables(table.Visit) {}

// State returns 0.
func (Passive) State(*Rooms, kernel.Ref) uint16 { return 0 }

// A Commander is a flow that takes commands of the engine.
type Commander interface {
	// Command handles a command, or returns false if the flow does not take commands of that type.
	Command(e *Env, x *effects.Command) bool
}

// A Server is a flow that takes the messages with which peers begin an exchange.
type Server interface {
	// Serves reports whether the flow takes messages of a channel. Serves returns the tag of these messages, or TagNone
	// if the flow takes every message that is not taken by its tag.
	Serves(c effects.Channel) (protocol.Tag, bool)
	// Receive handles such a message.
	Receive(e *Env, x *effects.Received)
}

// A ClassKeeper is a flow that keeps something for each fairness class of peers.
type ClassKeeper interface {
	// ClassLeft drops what was kept for a class, because the class belongs to another peer from now on.
	ClassLeft(e *Env, class int)
}

// A Busier is a flow with rows that prevent a fairness class from being given to another peer.
type Busier interface {
	// Busy adds the number of such rows to the entry of each class.
	Busy(all []uint32)
}

// A LinkWaiter is a flow with rows that wait for links to the pages of peers that call this rank.
type LinkWaiter interface {
	// Reached reports that the link to the pages of a class is up or, if code is not OK, that the link cannot be made.
	Reached(e *Env, class int, code effects.Code)
}

// A PeerWatcher is a flow with rows that end when a peer's link to our pages is lost.
type PeerWatcher interface {
	// PeerLost handles this loss. silent means that the peer itself is gone, and that the planes are fenced.
	PeerLost(e *Env, peer effects.Incarnation, silent bool)
}

// A LossSweeper is a flow with rows that are condemned when a silent peer is lost, and that a sweep ends afterwards.
type LossSweeper interface {
	// Condemn marks the rows of a class as lost, without visiting them.
	Condemn(class int)
	// LostAt ends the row at a slot if the row is lost.
	LostAt(e *Env, slot int32) kernel.Where
}

// A DrainSweeper is a flow with rows that a sweep ends in a drain.
type DrainSweeper interface {
	// DrainAt ends the row at a slot, and reports whether there are more slots.
	DrainAt(e *Env, slot int32) (more bool)
}

// A Continuer is a flow with work that is left by earlier steps.
type Continuer interface {
	// Continue does some of that work, and reports whether some is left for the next step.
	Continue(e *Env) (left bool)
}

// A Target is a flow for which requests of peers wait for pages in the allocation queue.
type Target interface {
	Flow
	// Try serves the next request of the allocation queue, if that is possible now. If not, Try returns what the
	// request lacks.
	Try(e *Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall)
}

// A Lender is a flow that leases pages to readers, which may request more time.
type Lender interface {
	Flow
	// Lease returns the lease of the row that a read grant belongs to.
	Lease(ref kernel.Ref) *lease.Owner
	// Extend gives the lease of that row more time, and returns the result and the time that is granted.
	Extend(e *Env, ref kernel.Ref) (lease.Extended, effects.Duration)
}

// A Signal is a room's notification to a flow about one row of the flow. The Signal is a struct, so that a notification
// allocates nothing.
type Signal struct {
	Kind SignalKind
	Code effects.Code // the reason
	Why  *effects.Why // the reason in words, for Refused
}

// SignalKind is the kind of event that a Signal reports.
type SignalKind uint8

// The kinds of signals.
const (
	// Changed: the state of an outbound peer changed, so rows that wait for the peer have to be looked at again.
	Changed    SignalKind = iota + 1
	LeaseEnded            // a reader has finished reading under this lease
	// Refused: a pending request waits in vain. The flow replies with an error and removes the request.
	Refused
	Ended // the flow ends a landing for a reason of this rank
)

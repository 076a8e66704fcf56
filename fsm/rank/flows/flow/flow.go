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
// [Server], [Target], [Lender], [ClassKeeper], [ClassHolder], [LinkWaiter], [PeerWatcher], [LossSweeper],
// [DrainSweeper] and [Continuer].
type Flow interface {
	// Step handles the completion of the effect, or the end of the grant, for which ref was given.
	Step(e *Env, ref kernel.Ref, ev effects.Event)
	// OnTimer handles a deadline that has passed. Its timer is already removed.
	OnTimer(e *Env, ref kernel.Ref)
	// OnSignal handles a notification from a room. ref names the flow's row, or the outbound peer if the signal is
	// PeerChanged.
	OnSignal(e *Env, ref kernel.Ref, s Signal)
	Cold
}

// Cold contains the methods of a Flow that a rank calls rarely.
type Cold interface {
	// AbortCommand ends the command that an engine's ticket stands for early, and reports whether there was anything to
	// end.
	AbortCommand(e *Env, ref kernel.Ref) bool
	// CountUnfinished returns the number of the flow's rows that a drain waits for.
	CountUnfinished(e *Env) int
	// VisitTables visits the tables that belong to the flow alone.
	VisitTables(visit table.VisitFunc)
	// RowState returns the state of a row as a number of the flow's own. RowState is for statistics; no decision
	// depends on it.
	RowState(r *Rooms, ref kernel.Ref) uint16
}

// Passive has the methods of a Flow that has no timers, no tickets and no tables of its own, and receives no signals. A
// flow of this kind embeds Passive.
type Passive struct{}

// OnTimer panics, because the flow has set no timer.
func (Passive) OnTimer(*Env, kernel.Ref) { kernel.PanicUnexpected("a flow without timers") }

// OnSignal panics, because the flow has no rows of which a room could notify it.
func (Passive) OnSignal(*Env, kernel.Ref, Signal) {
	kernel.PanicUnexpected("a flow without rows in rooms")
}

// AbortCommand returns false: no command of the engine is open here.
func (Passive) AbortCommand(*Env, kernel.Ref) bool { return false }

// CountUnfinished returns 0, because a drain waits for nothing here.
func (Passive) CountUnfinished(*Env) int { return 0 }

// VisitTables visits nothing.
func (Passive) VisitTables(table.VisitFunc) {}

// RowState returns 0.
func (Passive) RowState(*Rooms, kernel.Ref) uint16 { return 0 }

// A Commander is a flow that takes commands of the engine.
type Commander interface {
	// OnCommand handles a command, or returns false if the flow does not take commands of that type.
	OnCommand(e *Env, x *effects.Command) bool
}

// A Server is a flow that takes the messages with which peers begin an exchange.
type Server interface {
	// ServedTag reports whether the flow takes messages of a channel. ServedTag returns the tag of these messages, or
	// TagNone if the flow takes every message that is not taken by its tag.
	ServedTag(c effects.Channel) (protocol.Tag, bool)
	// HandleMessage handles such a message.
	HandleMessage(e *Env, x *effects.Received)
}

// A ClassKeeper is a flow that keeps something for each fairness class of peers.
type ClassKeeper interface {
	// OnClassReassigned drops what was kept for a class, because the class belongs to another peer from now on.
	OnClassReassigned(e *Env, class int)
}

// A ClassHolder is a flow with rows that prevent a fairness class from being given to another peer.
type ClassHolder interface {
	// AddClassRows adds the number of such rows to the entry of each class.
	AddClassRows(all []uint32)
}

// A LinkWaiter is a flow with rows that wait for links to the pages of peers that call this rank.
type LinkWaiter interface {
	// OnReachOutcome reports that the link to the pages of a class is up or, if code is not OK, that the link cannot be
	// made.
	OnReachOutcome(e *Env, class int, code effects.Code)
}

// A PeerWatcher is a flow with rows that end when a peer's link to our pages is lost.
type PeerWatcher interface {
	// OnPeerLost handles this loss. silent means that the peer itself is gone, and that the planes are fenced.
	OnPeerLost(e *Env, peer effects.Incarnation, silent bool)
}

// A LossSweeper is a flow with rows that are condemned when a silent peer is lost, and that a sweep ends afterwards.
type LossSweeper interface {
	// CondemnClass marks the rows of a class as lost, without visiting them.
	CondemnClass(class int)
	// SweepLost ends the row at a slot if the row is lost.
	SweepLost(e *Env, slot int32) kernel.VisitResult
}

// A DrainSweeper is a flow with rows that a sweep ends in a drain.
type DrainSweeper interface {
	// SweepDrain ends the row at a slot, and reports whether there are more slots.
	SweepDrain(e *Env, slot int32) (more bool)
}

// A Continuer is a flow with work that is left by earlier steps.
type Continuer interface {
	// ContinueWork does some of that work, and reports whether some is left for the next step.
	ContinueWork(e *Env) (left bool)
}

// A Target is a flow for which requests of peers wait for pages in the allocation queue.
type Target interface {
	Flow
	// TryServe serves the next request of the allocation queue, if that is possible now. If not, TryServe returns what
	// the request lacks.
	TryServe(e *Env, q *allocqueue.Row) (allocqueue.TryResult, allocqueue.Shortfall)
}

// A Lender is a flow that leases pages to readers, which may request more time.
type Lender interface {
	Flow
	// LeaseOf returns the lease of the row that a read grant belongs to.
	LeaseOf(ref kernel.Ref) *lease.Owner
	// ExtendLease gives the lease of that row more time, and returns the result and the time that is granted.
	ExtendLease(e *Env, ref kernel.Ref) (lease.ExtendOutcome, effects.Duration)
}

// A Signal is a room's notification to a flow about one row of the flow. The Signal is a struct, so that a notification
// allocates nothing.
type Signal struct {
	Kind SignalKind
	Code effects.Code // the reason
	Why  *effects.Why // the reason in words, for RequestRefused
}

// SignalKind is the kind of event that a Signal reports.
type SignalKind uint8

// The kinds of signals.
const (
	// PeerChanged: the state of an outbound peer changed, so rows that wait for the peer have to be looked at again.
	PeerChanged SignalKind = iota + 1
	LeaseEnded             // a reader has finished reading under this lease
	// RequestRefused: a pending request waits in vain. The flow replies with an error and removes the request.
	RequestRefused
	LandingEnded // the flow ends a landing for a reason of this rank
)

package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Flow is what each flow implements. The rank registers its flows in a fixed order, and finds by type assertion which
// of the interfaces below a flow implements besides: [Commander], [Server], [Target], [Lender], [ClassKeeper], [Busier],
// [LinkWaiter], [PeerWatcher], [LossSweeper], [DrainSweeper] and [Continuer]. Flows are called in that order.
type Flow interface {
	// Step takes the completion of the effect, or the end of the grant, that Ref was given for.
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

// Passive has the methods of a Flow that has no timers, no tickets and no tables of its own, and receives no signals.
// Such a flow embeds it.
type Passive struct{}

// Due panics: the flow has set no timer.
func (Passive) Due(*Env, kernel.Ref) { kernel.Foreign("a flow without timers") }

// Signal panics: the flow has no rows of which a room could notify it.
func (Passive) Signal(*Env, kernel.Ref, Signal) { kernel.Foreign("a flow without rows in rooms") }

// Abort returns false: no command of the engine is open here.
func (Passive) Abort(*Env, kernel.Ref) bool { return false }

// Left returns 0: a drain waits for nothing here.
func (Passive) Left(*Env) int { return 0 }

// Tables visits nothing.
func (Passive) Tables(table.Visit) {}

// State returns 0.
func (Passive) State(*Rooms, kernel.Ref) uint16 { return 0 }

// A Commander is a flow that takes commands of the engine.
type Commander interface {
	// Command takes a command, or returns false if that is no command of this flow.
	Command(e *Env, x *effects.Command) bool
}

// A Server is a flow that takes the messages with which peers begin an exchange.
type Server interface {
	// Serves reports whether the flow takes messages of a channel, and which of them: those with a tag, or with
	// TagNone all that no other flow takes by their tag.
	Serves(c effects.Channel) (protocol.Tag, bool)
	// Receive takes such a message.
	Receive(e *Env, x *effects.Received)
}

// A ClassKeeper is a flow that keeps something for each fairness class of peers.
type ClassKeeper interface {
	// ClassLeft forgets what was kept for a class, which belongs to another peer from now on.
	ClassLeft(e *Env, class int)
}

// A Busier is a flow with rows for which a class must stay its peer's.
type Busier interface {
	// Busy adds the number of such rows to that of each class.
	Busy(all []uint32)
}

// A LinkWaiter is a flow whose rows wait for links to the pages of peers that call this rank.
type LinkWaiter interface {
	// Reached handles that the link to the pages of a class is there, or with a code that it cannot be had.
	Reached(e *Env, class int, code effects.Code)
}

// A PeerWatcher is a flow with rows that end when a peer's link to our pages is gone.
type PeerWatcher interface {
	// PeerLost handles that. silent: the peer itself is gone, on planes that are fenced.
	PeerLost(e *Env, peer effects.Incarnation, silent bool)
}

// A LossSweeper is a flow with rows that are condemned when a silent peer is lost, and ended by a sweep afterwards.
type LossSweeper interface {
	// Condemn marks the rows of a class as lost. It looks at none of them.
	Condemn(class int)
	// LostAt ends the row at a slot if it is lost.
	LostAt(e *Env, slot int32) kernel.Where
}

// A DrainSweeper is a flow with rows that a drain ends by a sweep.
type DrainSweeper interface {
	// DrainAt ends the row at a slot, and reports whether there are more slots.
	DrainAt(e *Env, slot int32) (more bool)
}

// A Continuer is a flow with work that is left by earlier steps.
type Continuer interface {
	// Continue does some of that work, and reports whether some is left for the next step.
	Continue(e *Env) (left bool)
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
	Kind SignalKind
	Code effects.Code // why
	Why  *effects.Why // in words, of what is refused
}

// SignalKind says what happened.
type SignalKind uint8

// The kinds.
const (
	Changed    SignalKind = iota + 1 // whoever waits for this outbound peer is to look again
	LeaseEnded                       // a reader reads no more under this lease
	Refused                          // a request that waits for pages waits in vain: it is to be answered and removed
	Ended                            // a landing is to end for a reason of ours
)

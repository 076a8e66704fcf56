package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System is what runs in a world: machines of some kind, the engines that give them commands and hear what becomes of
// those, the faults that only it has a word for. The world calls it through here and knows nothing else of it. Its
// functions are given the world and keep nothing between calls: what a system must remember of a run is in the world.
type System struct {
	Name string

	Cast func(w *World, p *plan.Plan, n *Node)  // says what a node of a plan is to do
	Boot func(w *World, n *Node) (Pools, error) // gives it the machine of a new life, and says what memory that has

	Engine   Engine
	Outsider Outsider
	Words    Words

	Calls func(n *Node, name effects.Incarnation) bool // peers call this life of a node so
	// it gave that token to a peer, to whom it is us
	Invited func(n *Node, peer, us effects.Incarnation, token []byte) bool
	Tidy    func(w *World) // between deliveries

	// mischief makes a scheduled fault of the system's own strike, and counts it if there was something to strike.
	Mischief func(w *World, n *Node, f *plan.Scheduled)
	Marks    coverage.Point    // where the coverage has the marks of its machines
	Closed   []effects.Channel // where noise comes to a node that listens nowhere
}

// Engine is who gives commands, and for whom machines work.
type Engine struct {
	Begin func(w *World)             // queues the workload of a plan
	Act   func(w *World, d Delivery) // does what was queued by engines

	Command  func(w *World, n *Node, t effects.Ticket) effects.CommandBody // n's machine is about to get it
	Named    func(w *World, n *Node, t effects.Ticket) plan.Subject        // what a command is called in draws
	Outcome  func(w *World, n *Node, e *effects.Deliver)
	Returned func(w *World, n *Node, e *effects.Return)
	Observed func(w *World, n *Node, e *effects.Observe)
	Died     func(w *World, n *Node) // an incarnation of n has ended: what its engine wanted is void

	// Words that nobody answers, as they leave; taken says whether the transport took them. One is for the proxy: about
	// which request it is, with how many chunks missing. The other is for a node. False ends the run.
	Notice func(w *World, n *Node, body []byte, taken bool) (request, missing uint64, ok bool)
	Tell   func(w *World, n *Node, body []byte, taken bool) (ok bool)

	// What belongs to the phases of a run, once its faults have ended.
	// Scatter hands chunks over whose engine's device code is not modelled here; false: it is. nil: all is.
	Scatter    func(w *World, n *Node, e *effects.Scatter) bool
	Patience   func(w *World) effects.Duration // longer than anything takes that has a deadline
	Keeps      func(w *World) effects.Duration // for how long at the most it is kept what nobody comes for
	Unfinished func(w *World) int              // commands that wait for an outcome, or for their memory
	Overdue    func(w *World)                  // finds what should have ended by now
	Probe      func(w *World)                  // tries whether everything works again
	Drain      func(w *World, n *Node)
	Asked      func(w *World, c *Conn, corr effects.Corr, body []byte) // on [ChannelDispatch]
}

// Outsider is a peer that is no node: it has no machine of ours, and listens beside the nodes at [outsiderHost].
type Outsider struct {
	Asked    func(w *World, c *Conn, corr effects.Corr, body []byte)
	Answered func(w *World, r *Request, body []byte) // what it asked a node itself
	Link     func(w *World, n *Node) *Link           // that a node makes to it
}

// Words are what the network must know of messages, to break them.
type Words struct {
	// A message of a node as it arrives, and one that is to be answered: corrupted, or in the forms of another encoder.
	// The bytes are borrowed until the next.
	OnItsWay func(w *World, n *Node, f plan.Fault, c *Conn, direction, nth uint64, body []byte) []byte
	Asked    func(w *World, n *Node, c *Conn, body []byte) []byte

	Legible   func(w *World, c *Conn) func(body []byte) bool // what on a connection is a message; nil: nobody knows
	Senseless func(body []byte) ([]byte, bool)               // an answer that reads well and cannot be meant
	Wrong     func() []byte                                  // an answer to something that nobody asked
	Good      func() []byte                                  // a request as nodes get them
}

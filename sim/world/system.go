package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System determines what runs in a world: machines of some kind, the engines that give commands to them and receive
// the outcomes, and the faults that only the system can interpret. The world calls the system through these functions
// and knows nothing else about it. The functions receive the world and must keep no state between calls; the state that
// a system needs in a run is part of the world.
type System struct {
	Name string

	// Cast sets the role of a node of the plan.
	Cast func(w *World, p *plan.Plan, n *Node)
	// Boot gives a node the machine of a new incarnation and returns the memory of that incarnation.
	Boot func(w *World, n *Node) (Pools, error)

	Engine   Engine
	Outsider Outsider
	Words    Words

	// Calls reports whether peers know the present incarnation of n by name.
	Calls func(n *Node, name effects.Incarnation) bool
	// Invited reports whether n gave the token to the peer, which knows n as us.
	Invited func(n *Node, peer, us effects.Incarnation, token []byte) bool
	// Tidy is called between deliveries.
	Tidy func(w *World)

	// Mischief makes a scheduled fault of the system strike, and counts the fault if it found something to strike.
	Mischief func(w *World, n *Node, f *plan.Scheduled)
	// Marks is the coverage point of the first mark of the system's machines.
	Marks coverage.Point
	// Closed lists the channels on which noise reaches a node that listens on no channel.
	Closed []effects.Channel
}

// Engine is the part of a system that gives commands to the machines and receives their outcomes.
type Engine struct {
	// Begin queues the workload of a plan.
	Begin func(w *World)
	// Act carries out a delivery that an engine queued.
	Act func(w *World, d Delivery)

	// Command returns the body of a command that n's machine is about to receive.
	Command func(w *World, n *Node, t effects.Ticket) effects.CommandBody
	// Named returns the name of a command in draws.
	Named func(w *World, n *Node, t effects.Ticket) plan.Subject
	// Outcome, Returned and Observed receive what a machine reports to its engine.
	Outcome  func(w *World, n *Node, e *effects.Deliver)
	Returned func(w *World, n *Node, e *effects.Return)
	Observed func(w *World, n *Node, e *effects.Observe)
	// Died reports that an incarnation of n has ended, so that its engine's commands are void.
	Died func(w *World, n *Node)

	// Notice and Tell receive one-way messages when they are sent. Taken reports whether the transport accepted the
	// message. Notice receives messages to the proxy and returns the request that the message is about and the number
	// of its missing chunks. Tell receives messages to a node. If either returns false, the run ends.
	Notice func(w *World, n *Node, body []byte, taken bool) (request, missing uint64, ok bool)
	Tell   func(w *World, n *Node, body []byte, taken bool) (ok bool)

	// The functions below belong to the phases of a run after its faults have ended, except for Scatter and Asked.
	//
	// Scatter passes chunks to an engine with device code that is not modelled here. It returns false if the code is
	// modelled here. If Scatter is nil, the device code of all engines is.
	Scatter func(w *World, n *Node, e *effects.Scatter) bool
	// Patience returns a time span that is longer than anything with a deadline takes.
	Patience func(w *World) effects.Duration
	// Keeps returns the longest time for which something is kept that no peer requests.
	Keeps func(w *World) effects.Duration
	// Unfinished returns the number of commands that wait for an outcome or for their memory.
	Unfinished func(w *World) int
	// Overdue fails the run for anything that should have ended by now.
	Overdue func(w *World)
	// Probe verifies that everything works again.
	Probe func(w *World)
	// Drain asks a node to drain.
	Drain func(w *World, n *Node)
	// Asked receives a request on [ChannelDispatch].
	Asked func(w *World, c *Conn, corr effects.Corr, body []byte)
}

// Outsider is a peer that is not a node: it runs no machine of kvferry, and listens at [OutsiderHost].
type Outsider struct {
	// Asked receives a request to the outsider.
	Asked func(w *World, c *Conn, corr effects.Corr, body []byte)
	// Answered receives the reply to a request that the outsider sent to a node.
	Answered func(w *World, r *Request, body []byte)
	// Link creates the link that a node imports from the outsider.
	Link func(w *World, n *Node) *Link
}

// Words provides what the network needs to know about messages in order to corrupt them.
type Words struct {
	// OnItsWay returns a message of a node as it arrives: unchanged, corrupted, or in the encoding of another
	// implementation. Asked does the same for a message that expects a reply. The returned bytes are borrowed until the
	// next call.
	OnItsWay func(w *World, n *Node, f plan.Fault, c *Conn, direction, nth uint64, body []byte) []byte
	Asked    func(w *World, n *Node, c *Conn, body []byte) []byte

	// Legible returns the function that recognizes well-formed messages of a connection, or nil if there is no such
	// function.
	Legible func(w *World, c *Conn) func(body []byte) bool
	// Senseless returns a reply that is well-formed but makes no sense.
	Senseless func(body []byte) ([]byte, bool)
	// Wrong returns a reply to a question that was not asked.
	Wrong func() []byte
	// Good returns a request as nodes receive it.
	Good func() []byte
}

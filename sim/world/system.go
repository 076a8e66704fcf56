package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System is what runs in a world: machines of some kind, the engines that give commands to the machines and receive
// the outcomes, and the faults that only the system can interpret. The world calls the system through these methods and
// knows nothing else about the system. A System belongs to a run, and contains the world and the system's own state of
// the run.
//
// The methods are grouped by the part of the system that they concern. The phases of a run are described at
// [World.Live].
type System interface {
	// Nodes.

	// Cast sets the role of a node of the plan.
	Cast(n *Node)
	// Boot gives a node the machine of a new incarnation and returns the memory of that incarnation.
	Boot(n *Node) (Pools, error)
	// IsName reports whether peers know the present incarnation of n by name.
	IsName(n *Node, name effects.Incarnation) bool
	// Invited reports whether n gave the token to the peer, which knows n as us.
	Invited(n *Node, peer, us effects.Incarnation, token []byte) bool
	// StartFault makes a scheduled fault of the system strike, and counts the fault if there was something to strike.
	Mischief(n *Node, f *plan.Scheduled)
	// PointMark returns the coverage point of the first mark of the system's machines.
	PointMark() coverage.Point
	// ClosedPorts lists the channels on which noise reaches a rank that listens on no channel.
	ClosedPorts() []effects.Channel
	// Tidy is called between deliveries.
	Tidy()

	// Engines, which give commands to the machines and receive the outcomes.

	// StartEngines queues the workload of the plan.
	StartEngines()
	// Act carries out a delivery that an engine queued.
	Act(d Delivery)
	// CommandBody returns the body of a command that n's machine is about to receive.
	CommandBody(n *Node, t effects.Ticket) effects.CommandBody
	// CommandName returns the name of a command in draws.
	CommandName(n *Node, t effects.Ticket) plan.Subject
	// HandleDeliver, HandleReturn and HandleObserve receive what a machine reports to its engine.
	Delivered(n *Node, e *effects.Deliver)
	Returned(n *Node, e *effects.Return)
	Observed(n *Node, e *effects.Observe)
	// VoidCommands ends the commands of n's engine, because the incarnation that received them has ended.
	VoidCommands(n *Node)
	// OnProxyPost and OnNodePost receive each one-way message at the time of sending. Taken reports whether the transport
	// accepted the message. OnProxyPost receives messages to the proxy, and returns the request that the message is about
	// and the number of missing chunks. OnNodePost receives messages to a node. If either method returns false, the run
	// ends.
	Notice(n *Node, body []byte, taken bool) (request, missing uint64, ok bool)
	Tell(n *Node, body []byte, taken bool) (ok bool)
	// Dispatched receives a request on [ChannelDispatch].
	Dispatched(c *Conn, corr effects.Corr, body []byte)
	// Scatter passes chunks to an engine with device code that is not modelled here. The result is false if the code is
	// modelled here.
	Scatter(n *Node, e *effects.Scatter) bool

	// The phases of a run after its faults have ended.

	// Patience returns a time span that is longer than anything with a deadline takes.
	Patience() effects.Duration
	// KeepTime returns the longest time for which something is kept that no peer requests.
	KeepTime() effects.Duration
	// Pending returns the number of commands that wait for an outcome or for their memory.
	Pending() int
	// Overdue fails the run for anything that should have ended by now.
	Overdue()
	// Probe verifies that everything works again.
	Probe()
	// Drain asks a node to drain.
	Drain(n *Node)

	// The outsider is a peer that is not a node, runs no machine of kvferry, and listens at [OutsiderHost].

	// OutsiderAsked receives a request to the outsider.
	OutsiderAsked(c *Conn, corr effects.Corr, body []byte)
	// OutsiderAnswered receives the reply to a request that the outsider sent to a node.
	OutsiderAnswered(r *Request, body []byte)
	// OutsiderLink creates the link that a node imports from the outsider.
	OutsiderLink(n *Node) *Link

	// Messages: the knowledge that the network needs in order to corrupt messages.

	// MessageInTransit returns the form in which a message of a node arrives: unchanged, corrupted, or in the encoding of
	// another implementation. RequestInTransit does the same for a message that expects a reply. The returned bytes are
	// borrowed until the next call.
	InTransit(n *Node, f plan.Fault, c *Conn, direction, nth uint64, body []byte) []byte
	RequestInTransit(n *Node, c *Conn, body []byte) []byte
	// Legible returns the function that recognizes well-formed messages of a connection, or nil if messages cannot be
	// recognized.
	Legible(c *Conn) func(body []byte) bool
	// ImplausibleReply changes a reply into a well-formed reply that contradicts the request. The result is false if the
	// reply cannot be changed in this way.
	SenselessReply(body []byte) ([]byte, bool)
	// WrongReply returns a reply to a question that was not asked.
	WrongReply() []byte
	// ValidRequest returns a request as nodes receive it.
	ValidRequest() []byte
}

package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System is what runs in a world: machines of some kind, the engines that give commands to the machines and receive
// the outcomes, and the faults that only the system can interpret. The world calls the system through these methods and
// knows nothing else about the system. A System belongs to a run, and contains the world and the system's own state of
// the run.
//
// The methods are grouped by the part of the system that they concern. The phases of a run are described at
// [World.RunPhases].
type System interface {
	// Nodes.

	// SetRole sets the role of a node of the plan.
	SetRole(n *Node)
	// BootNode gives a node the machine of a new incarnation and returns the memory of that incarnation.
	BootNode(n *Node) (Pools, error)
	// IsIncarnation reports whether peers know the present incarnation of n by name.
	IsIncarnation(n *Node, name effects.Incarnation) bool
	// IsInvited reports whether n gave the token to the peer, which knows n as us.
	IsInvited(n *Node, peer, us effects.Incarnation, token []byte) bool
	// ForbidMessage reports whether a message that n is about to receive must change nothing. It is called where
	// processes prove identities.
	ForbidMessage(n *Node, e *effects.Received) Forbidden
	// StartFault makes a scheduled fault of the system strike, and counts the fault if there was something to strike.
	StartFault(n *Node, f *plan.ScheduledFault)
	// FirstMarkPoint returns the coverage point of the first mark of the system's machines.
	FirstMarkPoint() coverage.Point
	// ClosedPorts lists the channels on which noise reaches a rank that listens on no channel.
	ClosedPorts() []effects.Channel
	// CompactLists is called between deliveries.
	CompactLists()

	// Engines, which give commands to the machines and receive the outcomes.

	// StartEngines queues the workload of the plan.
	StartEngines()
	// HandleEngineDelivery carries out a delivery that an engine queued.
	HandleEngineDelivery(d Delivery)
	// CommandBody returns the body of a command that n's machine is about to receive.
	CommandBody(n *Node, t effects.Ticket) effects.CommandBody
	// CommandName returns the name of a command in draws.
	CommandName(n *Node, t effects.Ticket) plan.Subject
	// HandleDeliver, HandleReturn and HandleObserve receive what a machine reports to its engine.
	HandleDeliver(n *Node, e *effects.Deliver)
	HandleReturn(n *Node, e *effects.Return)
	HandleObserve(n *Node, e *effects.Observe)
	// HandleRestart lets the engine of n begin anew, because another incarnation of n has begun.
	HandleRestart(n *Node)
	// VoidCommands ends the commands of n's engine, because the incarnation that received them has ended.
	VoidCommands(n *Node)
	// OnProxyPost and OnNodePost receive each one-way message at the time of sending. Taken reports whether the
	// transport accepted the message. OnProxyPost receives messages to the proxy, and returns the request that the
	// message is about and the number of missing chunks. OnNodePost receives messages to a node. If either method
	// returns false, the run ends.
	OnProxyPost(n *Node, body []byte, taken bool) (request, missing uint64, ok bool)
	OnNodePost(n *Node, body []byte, taken bool) (ok bool)
	// HandleDispatch receives a request on [ChannelDispatch].
	HandleDispatch(c *Conn, corr effects.Corr, body []byte)
	// ScatterChunks passes chunks to an engine with device code that is not modelled here. The result is false if the
	// code is modelled here.
	ScatterChunks(n *Node, e *effects.Scatter) bool

	// The phases of a run after its faults have ended.

	// LongestDeadline returns a time span that is longer than anything with a deadline takes.
	LongestDeadline() effects.Duration
	// KeepTime returns the longest time for which something is kept that no peer requests.
	KeepTime() effects.Duration
	// PendingCommands returns the number of commands that wait for an outcome or for their memory.
	PendingCommands() int
	// FailOverdue fails the run for anything that should have ended by now.
	FailOverdue()
	// ProbeTransfers verifies that everything works again.
	ProbeTransfers()
	// DrainNode asks a node to drain.
	DrainNode(n *Node)

	// The outsider is a peer that is not a node, runs no machine of kvferry, and listens at [OutsiderHost].

	// HandleOutsiderRequest receives a request to the outsider.
	HandleOutsiderRequest(c *Conn, corr effects.Corr, body []byte)
	// HandleOutsiderReply receives the reply to a request that the outsider sent to a node.
	HandleOutsiderReply(r *Request, body []byte)
	// NewOutsiderLink creates the link that a node imports from the outsider.
	NewOutsiderLink(n *Node) *Link

	// Messages: the knowledge that the network needs in order to corrupt messages.

	// MessageInTransit returns the form in which a message of a node arrives: unchanged, corrupted, or in the encoding
	// of another implementation. RequestInTransit does the same for a message that expects a reply. The returned bytes
	// are borrowed until the next call.
	MessageInTransit(n *Node, f plan.Fault, c *Conn, direction, nth uint64, body []byte) []byte
	RequestInTransit(n *Node, c *Conn, body []byte) []byte
	// MessageValidator returns the function that recognizes well-formed messages of a connection, or nil if messages
	// cannot be recognized.
	MessageValidator(c *Conn) func(body []byte) bool
	// ImplausibleReply changes a reply into a well-formed reply that contradicts the request. The result is false if
	// the reply cannot be changed in this way.
	ImplausibleReply(body []byte, d draw.Value) ([]byte, bool)
	// UnrelatedReply returns a reply to a question that was not asked.
	UnrelatedReply() []byte
	// ValidRequest returns a request as nodes receive it.
	ValidRequest() []byte
}

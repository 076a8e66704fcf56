package story

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A Describer gives a recorder access to a run. The world describes nodes, networks, planes and memory. The simulated
// system implements this interface to describe the commands of engines, the contents of messages and the beliefs of
// machines.
type Describer interface {
	BaseWorld() *world.World
	NodeLabel(node int32) string                         // the name of a node in sentences
	NodeOfIncarnation(i effects.Incarnation) *world.Node // the node with this incarnation, or nil
	RoleName(n *world.Node) string                       // the role of a node
	ExplainLine(e world.Entry) string                    // explains a line of this system; may be ""
	CommandCount() int                                   // number of commands; tickets count from 1
	DescribeCommand(t effects.Ticket) Command            // the command of a ticket
	// RequestName returns the name of a request, or nil if there is none of that number.
	RequestName(number uint64) []byte
	RequestOfCommand(t effects.Ticket) []byte // the request of a command, or nil
	KeysOfRequest(request []byte) []uint32    // the keys that a request is about
	// FindRequest returns the node and the request of a command, by the name of the command in draws.
	FindRequest(command plan.Subject) (int32, []byte)
	KeyText(k uint32) []byte                       // the text of a key, or nil
	BeliefAbout(n *world.Node, page uint32) Belief // of the machine of the node
	LeaseTime(n *world.Node) effects.Duration      // lease of the grants of a node
	// VisitLeftovers visits the counts of everything that a node's machine must not have while nothing is in flight,
	// under the names of [oracle.Leftover].
	VisitLeftovers(n *world.Node, visit func(what string, count int))
	// DescribeMessage decodes a message. The node from has the message; it is the author of a reply.
	DescribeMessage(from int32, b []byte) Message
}

// Command describes a command of an engine.
type Command struct {
	Kind   string
	Node   int32
	Held   bool           // the rank still holds the memory
	Target effects.Ticket // the other command that this command refers to, if any
	Pages  []effects.Page
	Keys   []uint32
}

// Belief is the state of a page from the point of view of the machine.
type Belief struct {
	Refs, Holds uint32
	Grant       effects.GrantID
	Quarantined bool
}

// Message is a decoded message.
type Message struct {
	Kind, Text string
	Keys       []uint32
	Request    []byte
	Grants     []oracle.Grant
}

// Package oracle provides the means to judge a simulated run: oracles, checks, promises and subjects.
//
//   - An [Oracle] judges whether one promise is kept. [Of] creates an oracle; users of the simulator write their own.
//   - A [Check] counts how often an oracle judged a particular thing.
//   - [Promise] returns the promises of docs/safety.md, in the words of that page.
//   - A [Subject] names a thing that a failure is about, such as a page or a grant.
//
// An oracle may rely on the following:
//
//   - The oracle receives each event just before a machine is given the event, and each effect just before the effect
//     is carried out, in the order of the run.
//   - The memory belongs to the oracle alone. The memory is empty at the start of each run, and is cloned together with
//     the world when small worlds are explored.
//   - The first oracle that fails stops the run.
//
// For example, this oracle verifies that no ticket is delivered twice:
//
//	type memory struct{ Delivered map[effects.Ticket]bool }
//
//	once := oracle.New("once", "a command has one outcome", func(l *oracle.Subscriptions[memory]) {
//		oracle.On(l, func(m *memory, c *oracle.Call, e *effects.Deliver) {
//			if m.Delivered[e.Ticket] {
//				c.Fail("node %d delivers ticket %d twice", c.Node(), oracle.Ticket(e.Ticket))
//			}
//			if m.Delivered == nil {
//				m.Delivered = map[effects.Ticket]bool{}
//			}
//			m.Delivered[e.Ticket] = true
//		})
//	})
//
// Suppose that node 1 delivers ticket 5 twice. The first [effects.Deliver] sets the entry in the memory. Before the
// second one is carried out, the function is called again and calls Fail. The run then ends with a failure that names
// node 1 and ticket 5, and a trace of the run shows the steps that concerned them.
package oracle

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A Subject is something that a failure is about. An oracle that fails a run passes subjects as arguments of its
// sentence, formatted with the verbs of their numbers: Fail("node %d grants page %d", Node(2), Page{2, 7}). People read
// the sentence; its subjects determine which pages, grants and transfers a trace shows.
type Subject interface {
	// NodeID returns the node to which the subject belongs, or NoNode if the subject does not name a node.
	NodeID() int32
}

// NoNode is the node number of reports and subjects that belong to no node.
const NoNode = -1

type (
	// Node is a node, by its number.
	Node int32
	// Page is a page of a node, by the page number that people read.
	Page struct {
		Node  int32
		Index uint32
	}
	// Grant is a grant that a node made in its present incarnation.
	Grant struct {
		Node int32
		ID   effects.GrantID
	}
	// Transfer is a push or a read, by its number in the run. Landings have the number of their transfer.
	Transfer uint64
	// Ticket identifies a command of an engine.
	Ticket effects.Ticket
	// Link is a link, by its number in the run.
	Link uint64
	// Conn is a connection, by its number in the run.
	Conn uint64
	// Key is the key of a chunk, by its number in the plan.
	Key uint32
	// Message is a request that arrived at a node, by its number in the run.
	Message uint64
	// Request is the identifier that engines use for a request.
	Request []byte
	// Leftover is something that is left in a node when nothing is in flight, under the name that the machine uses:
	// grants, or a table. The steps of a leftover are the steps that created the remaining entries.
	Leftover struct {
		Node int32
		Name string
	}
)

// NodeID returns the node itself.
func (n Node) NodeID() int32 { return int32(n) }

// NodeID returns the node that has the page in its memory.
func (p Page) NodeID() int32 { return p.Node }

// NodeID returns the node that made the grant.
func (g Grant) NodeID() int32 { return g.Node }

// NodeID returns the node in which the remainder is found.
func (l Leftover) NodeID() int32 { return l.Node }

// Format prints the name of what is left.
func (l Leftover) Format(s fmt.State, verb rune) { fmt.Fprintf(s, fmt.FormatString(s, verb), l.Name) }

func (Transfer) NodeID() int32 { return NoNode }
func (Ticket) NodeID() int32   { return NoNode }
func (Link) NodeID() int32     { return NoNode }
func (Conn) NodeID() int32     { return NoNode }
func (Key) NodeID() int32      { return NoNode }
func (Message) NodeID() int32  { return NoNode }
func (Request) NodeID() int32  { return NoNode }

// Format prints the number of the page.
func (p Page) Format(s fmt.State, verb rune) { fmt.Fprintf(s, fmt.FormatString(s, verb), p.Index) }

// Format prints the number of the grant.
func (g Grant) Format(s fmt.State, verb rune) {
	fmt.Fprintf(s, fmt.FormatString(s, verb), uint64(g.ID))
}

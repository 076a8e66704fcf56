// Package oracle has what all who judge a run have in common: checks, which count how often they judged; promises, in
// the words of docs/safety.md; and subjects, what a failure is about. [Of] makes an oracle of a user's own.
//
// An oracle may rely on this: it hears each event as its machine is given it, and each effect just before it is carried
// out, in the order of the run; its memory is its own, begins empty with each run, and is cloned with the world where
// small worlds are explored. The first that fails stops the run.
package oracle

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A Subject is something that a failure is about. Whoever fails a run gives subjects as the arguments of his sentence,
// under the verbs of their numbers: Fail("node %d grants page %d", Node(2), Page{2, 7}). The sentence is read by
// people; its subjects say which pages, grants and transfers a trace is to show.
type Subject interface {
	// Of is the node whose it is, or Nobody if that is not said.
	Of() int32
}

// Nobody is no node.
const Nobody = -1

type (
	// Node is a node by its number.
	Node int32
	// Page is a page of a node, by the number that people read.
	Page struct {
		Node  int32
		Index uint32
	}
	// Grant is a grant that a node made in its present life.
	Grant struct {
		Node int32
		ID   effects.GrantID
	}
	// Transfer is a push or a read, by its number in the run. What landed is called by it too.
	Transfer uint64
	// Ticket is a command of an engine.
	Ticket effects.Ticket
	// Link is a link by its number in the run.
	Link uint64
	// Conn is a connection by its number in the run.
	Conn uint64
	// Key is the key of a chunk, by its number in the plan.
	Key uint32
	// Message is a request that came to a node, by its number in the run.
	Message uint64
	// Request is what engines call a request.
	Request []byte
	// Left is what is left in a node when nothing is under way, by the name that its machine has for that: grants, or a
	// table. Its steps are those in which what is left came to be there.
	Left struct {
		Node int32
		What string
	}
)

// Of is the node itself.
func (n Node) Of() int32 { return int32(n) }

// Of is the node whose memory it is in.
func (p Page) Of() int32 { return p.Node }

// Of is the node that gave it.
func (g Grant) Of() int32 { return g.Node }

// Of is the node in which it is left.
func (l Left) Of() int32 { return l.Node }

// Format shows what it is.
func (l Left) Format(s fmt.State, verb rune) { fmt.Fprintf(s, fmt.FormatString(s, verb), l.What) }

func (Transfer) Of() int32 { return Nobody }
func (Ticket) Of() int32   { return Nobody }
func (Link) Of() int32     { return Nobody }
func (Conn) Of() int32     { return Nobody }
func (Key) Of() int32      { return Nobody }
func (Message) Of() int32  { return Nobody }
func (Request) Of() int32  { return Nobody }

// Format shows the page's number.
func (p Page) Format(s fmt.State, verb rune) { fmt.Fprintf(s, fmt.FormatString(s, verb), p.Index) }

// Format shows the grant's number.
func (g Grant) Format(s fmt.State, verb rune) {
	fmt.Fprintf(s, fmt.FormatString(s, verb), uint64(g.ID))
}

package story

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A Teller is a run whose story is told. Of nodes, networks, planes and memory the world knows all; of what engines
// want, what messages say and what machines believe its system does, and says it here.
type Teller interface {
	Whole() *world.World
	Who(node int32) string                    // in sentences
	LifeOf(i effects.Incarnation) *world.Node // who lives under it now; nil: nobody
	Role(n *world.Node) string                // what a node is, beside its number
	Words(e world.Entry) string               // what a line means to this system alone; ""
	Given() int                               // commands; tickets count from 1
	Command(t effects.Ticket) Command         // one of them
	// what engines call a request; nil: there is none of that number
	Request(number uint64) []byte
	RequestOf(t effects.Ticket) []byte // that a command is for; nil: none
	Chunks(request []byte) []uint32    // the keys that a request is about
	// by its name in draws: whose command it is, for which request
	Asked(command plan.Subject) (int32, []byte)
	Key(k uint32) []byte                        // as machines spell it; nil
	Believed(n *world.Node, page uint32) Belief // by its machine
	Lease(n *world.Node) effects.Duration       // of what it grants
	// Held counts what a node's machine should not have when nothing is under way, by the names of oracle.Left.
	Held(n *world.Node, visit func(what string, count int))
	// from is who holds it, which for a reply is who wrote it
	Message(from int32, b []byte) Message
}

// Command is what an engine wants.
type Command struct {
	Want   string
	Node   int32
	Held   bool           // its memory is not its engine's yet
	Target effects.Ticket // that it is about, if another
	Pages  []effects.Page
	Keys   []uint32
}

// Belief is what a machine believes of a page.
type Belief struct {
	Refs, Holds uint32
	Grant       effects.GrantID
	Quarantined bool
}

// Message is what bytes say.
type Message struct {
	Kind, Text string
	Keys       []uint32
	Request    []byte
	Grants     []oracle.Grant
}

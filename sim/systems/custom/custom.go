// Package custom declares the types that describe a simulated system of machines: a [System], the processes of the system,
// the information that a machine receives at the start, and the random choices of a seed. Package sim repeats these
// types for users and runs the systems. Systems that ship with the simulator are also values of these types, each with
// a profile. The package only declares types and checks no property.
//
// Example: a System named "x" has two processes. For a seed, package sim calls Processes with the plan, calls Draw to
// fill the plan with items, starts each node by a call of New of the node's process, and turns each item of the plan
// into a command with the function of that name in Commands. When a node restarts, package sim calls New again for the
// new incarnation.
package custom

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System describes what runs in a world: the machines, the commands that their engines give, and the promises that
// they keep. Several runs may call the functions of a system at the same time, so the functions must keep no state.
//
// The machines receive everything that the world offers to an [effects.Machine]: connections, requests and replies,
// clocks that drift, and all faults of processes and networks. The machines have no pages, so an effect that needs a
// data plane breaks the contract. Each command must get its outcome, an [effects.Deliver], once faults have ended.
//
// A machine may also have a method VisitTables(visit func(name string, n, most int)). None of the visited tables may
// ever hold more than most entries, and none may hold any entry once the run has come to rest. A method VisitKeptTables
// with the same signature visits the tables that may keep entries at rest.
type System struct {
	// Name appears in plans and identifies the system's draws. A name consists of letters and digits.
	Name string
	// Processes returns the processes of a plan, at least one. Equal plans must have equal processes.
	Processes func(p *plan.Plan) []Process
	// Commands creates the commands that engines give, by the name of the command in the items of plans.
	Commands map[string]func(plan.Item) effects.CommandBody
	// Draw draws the items of a seed and may change the rest of the plan, which is already drawn. Nil: there are no
	// items.
	Draw func(d Draws, p *plan.Plan)
	// Oracles judge each run.
	Oracles []oracle.Oracle
	// FactNames holds the names of FactOther and the facts after it, for logs and stories.
	FactNames []string
	// IsWellFormed reports whether bytes are a well-formed message of this system. A corrupted message is never
	// well-formed, because a well-formed message with different content would be a lie of a peer and not damage. If
	// IsWellFormed is nil, no message is ever corrupted.
	IsWellFormed func(body []byte) bool
	// CommandTimeout is the longest time that a command may take after all faults have ended; 0 means ten seconds.
	CommandTimeout time.Duration
	// DriftMaxPPM is the largest rate by which a seed lets clocks run fast or slow, in parts per million; 0 means 200.
	// Beside ranks, clocks stay within the bounds of the ranks' leases.
	DriftMaxPPM int
	// RankProfile is the profile with which the ranks of PD are drawn that run beside this system; empty means the
	// profile that the run requests.
	RankProfile string
	// Parts holds the systems that sim.Join combined. A system with parts has only these and a name.
	Parts []System
}

// A Process is a node. Its machine is created anew for each incarnation.
type Process struct {
	// Name is the name of the process. The name must not be n0, n1 and so on, which are the names of nodes in plans.
	Name string
	// Channels lists the channels on which the process listens. At most one process may listen on ChannelProxy; this
	// process then takes the place of PD's proxy.
	Channels []effects.Channel
	// Moves says that every second incarnation runs on another host: its connections have another origin there. The
	// process listens at the same addresses.
	Moves bool
	// Proves returns the identity that an incarnation proves to the servers to which it connects, and its roles. Nil: none
	// is proved.
	Proves func(b Boot) (effects.Principal, effects.Roles)
	// Spared says that no scheduled fault that a seed draws is about this process.
	Spared bool
	// New creates the machine of an incarnation.
	New func(b Boot) (effects.Machine, error)
}

// Boot is the information that a machine receives when an incarnation starts.
type Boot struct {
	Name        string       // of the process
	Incarnation uint32       // the number of earlier incarnations of the process
	Seed        uint64       // for the machine's own random choices; different in each incarnation
	Now         effects.Time // by the clock of the node
	Plan        *plan.Plan   // read-only
	// Addr returns the address at which a node listens on a channel. The node is given by the name of its process, or
	// as n0, n1 and so on. Addr panics if no node has that name, or if the process does not serve the channel. A panic
	// in New ends the run with an error that describes the mistake.
	Addr func(node string, ch effects.Channel) effects.Addr
}

// Draws provides the random choices of a seed for one system. Each draw is identified by the system, a purpose and an
// ordinal, and depends on nothing else. An additional draw, or an additional system in the plan, therefore leaves all
// other draws unchanged.
type Draws interface {
	// NumberBelow returns a number below n, or 0 if n is 0.
	NumberBelow(what string, nth, n uint64) uint64
	// Duration returns a duration between least and most, rounded so that a person can read the plan.
	Duration(what string, nth uint64, least, most time.Duration) time.Duration
	// Items returns between least and most items. Each item happens at some instant before faults end, at one of the
	// named nodes, or at any node of the system if no names are given. Each item has a span of 10 ms to 500 ms and a
	// number below 100, which the caller may change. The items are sorted by time. Items panics if a name is not that
	// of a node.
	Items(do string, least, most int, nodes ...string) []plan.Item
}

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// A system is what runs in a world: machines of some kind, the engines that give them commands and hear what becomes of
// those, the faults that only it has a word for. The world calls it through here and knows nothing else of it. Its
// functions are given the world and keep nothing between calls: what a system must remember of a run is in the world.
type system struct {
	name     string
	profiles []string
	expand   func(seed uint64, profile string) (plan.Plan, error) // draws the plan of a seed

	cast func(w *world, p *plan.Plan, n *node)  // says what a node of a plan is to do
	boot func(w *world, n *node) (pools, error) // gives it the machine of a new life, and says what memory that has

	engine   engine
	outsider outsider
	words    words

	// mischief makes a scheduled fault of the system's own strike, and counts it if there was something to strike.
	mischief func(w *world, n *node, f *plan.Scheduled)
	closed   []effects.Channel // where noise comes to a node that listens nowhere
}

// engine is who gives commands, and for whom machines work.
type engine struct {
	begin func(w *world)             // queues the workload of a plan
	act   func(w *world, d delivery) // does what was queued by engines

	command  func(w *world, n *node, t effects.Ticket) effects.CommandBody // n's machine is about to get it
	named    func(w *world, n *node, t effects.Ticket) plan.Subject        // what a command is called in draws
	outcome  func(w *world, n *node, e *effects.Deliver)
	returned func(w *world, n *node, e *effects.Return)
	observed func(w *world, n *node, e *effects.Observe)

	// Words that nobody answers, as they leave; taken says whether the transport took them. One is for the proxy: about
	// which request it is, with how many chunks missing. The other is for a node. False ends the run.
	notice func(w *world, n *node, body []byte, taken bool) (request, missing uint64, ok bool)
	tell   func(w *world, n *node, body []byte, taken bool) (ok bool)

	// What belongs to the phases of a run, once its faults have ended.
	patience func(w *world) effects.Duration // longer than anything takes that has a deadline
	keeps    func(w *world) effects.Duration // for how long at the most it is kept what nobody comes for
	overdue  func(w *world)                  // finds what should have ended by now
	probe    func(w *world)                  // tries whether everything works again
	drain    func(w *world, n *node)
}

// outsider is a peer that is no node: it has no machine of ours, and listens beside the nodes at [outsiderHost].
type outsider struct {
	asked    func(w *world, c *conn, corr effects.Corr, body []byte)
	answered func(w *world, r *request, body []byte) // what it asked a node itself
	link     func(w *world, n *node) *link           // that a node makes to it
}

// words are what the network must know of messages, to break them.
type words struct {
	legible   func(body []byte) bool           // they are a message
	senseless func(body []byte) ([]byte, bool) // an answer that reads well and cannot be meant
	wrong     func() []byte                    // an answer to something that nobody asked
	good      func() []byte                    // a request as nodes get them
}

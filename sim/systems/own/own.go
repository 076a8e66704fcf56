// Package own defines the description of a system that consists of machines other than ranks and ships with the
// simulator. Package sim runs such a system in the same way as a system that a user defines, under a profile of the
// system's name. The package only declares types, so no property is checked here.
//
// Example: a System named "x" lists two Processes. For a seed, sim calls Nodes with the plan, calls Draw to fill the
// plan with items, starts each node by calling its New, and turns each item of the plan into a command by means of Do.
// When a node restarts, sim calls New again for the new incarnation.
package own

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System describes a simulated world of machines. Its fields correspond to the fields of sim.System. Several runs may
// call its functions concurrently, so the functions must not keep state.
type System struct {
	Name     string
	About    string // describes the profile in one line
	Nodes    func(p *plan.Plan) []Process
	Do       map[string]func(plan.Item) effects.CommandBody
	Draw     func(d Draws, p *plan.Plan)
	Oracles  []oracle.Oracle
	Facts    []string
	Legible  func(body []byte) bool
	Patience time.Duration
	DriftPPM int
}

// A Process describes one node. New creates a fresh machine for each incarnation of the node.
type Process struct {
	Name   string
	Serves []effects.Channel
	New    func(b Boot) (effects.Machine, error)
}

// Boot holds the information that a machine receives when it starts.
type Boot struct {
	Seed uint64 // seeds the machine's own random choices; differs for each incarnation
	Plan *plan.Plan
	Addr func(node string, ch effects.Channel) effects.Addr
}

// Draws gives a system the random choices of a seed; see sim.Draws.
type Draws interface {
	Below(what string, nth, n uint64) uint64
	Items(do string, least, most int, nodes ...string) []plan.Item
}

// Package own has what a system of machines is made of that are no ranks, and that come with the simulator: package
// sim runs it as it runs those of users, under a profile of the system's name. It holds no promise by itself.
package own

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A System is a world of its own; its fields are those of sim.System. Its functions may be called by several runs at
// once and remember nothing.
type System struct {
	Name     string
	About    string // its profile, in a line
	Nodes    func(p *plan.Plan) []Process
	Do       map[string]func(plan.Item) effects.CommandBody
	Draw     func(d Draws, p *plan.Plan)
	Oracles  []oracle.Oracle
	Facts    []string
	Legible  func(body []byte) bool
	Patience time.Duration
	DriftPPM int
}

// A Process is one node: a machine that is made anew for each life of it.
type Process struct {
	Name   string
	Serves []effects.Channel
	New    func(b Boot) (effects.Machine, error)
}

// Boot is what a machine may know as it begins.
type Boot struct {
	Seed uint64 // for what it draws itself; another one in each life
	Plan *plan.Plan
	Addr func(node string, ch effects.Channel) effects.Addr
}

// Draws are what a seed holds for the system: see sim.Draws.
type Draws interface {
	Below(what string, nth, n uint64) uint64
	Items(do string, least, most int, nodes ...string) []plan.Item
}

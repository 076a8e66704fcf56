package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// setting holds the parts of a plan that concern any system.
type setting struct {
	Leased        bool
	Communicators bool

	Faulty  effects.Duration // faults strike until then; then everything heals
	Net     effects.Duration // mean delay of a message
	Device  effects.Duration // mean time to move half a page
	Scatter effects.Duration // mean time to scatter a chunk

	Rates [plan.FaultKinds]int
}

// conditionsOf returns the setting of a plan.
func conditionsOf(p *plan.Plan) setting {
	s := setting{
		Leased: p.Topology.Leased, Communicators: p.Topology.Communicators,
		Faulty: effects.Duration(p.FaultsEnd), Net: effects.Duration(p.Delays.Message),
		Device: effects.Duration(p.Delays.Device), Scatter: effects.Duration(p.Delays.Scatter),
	}
	for f, rate := range p.Rates {
		s.Rates[f] = rate
	}
	return s
}

package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// conditions holds the parts of a plan that concern any system.
type conditions struct {
	Leased        bool
	Communicators bool
	Sums          bool // checksums are stated and compared

	FaultsEnd   effects.Duration // faults strike until then; then everything heals
	MessageTime effects.Duration // mean delay of a message
	DeviceTime  effects.Duration // mean time to move half a page
	ScatterTime effects.Duration // mean time to scatter a chunk

	Rates [plan.FaultCount]int
}

// conditionsOf returns the setting of a plan.
func conditionsOf(p *plan.Plan) conditions {
	s := conditions{
		Leased: p.Topology.Leased, Communicators: p.Topology.Communicators, Sums: p.Topology.Sums,
		FaultsEnd: effects.Duration(p.FaultsEnd), MessageTime: effects.Duration(p.Delays.Message),
		DeviceTime: effects.Duration(p.Delays.Device), ScatterTime: effects.Duration(p.Delays.Scatter),
	}
	for f, rate := range p.Rates {
		s.Rates[f] = rate
	}
	return s
}

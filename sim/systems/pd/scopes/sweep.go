package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// sweepScopes returns the scopes in which a step ends only a single row, so that any event may happen before the next
// row ends.
func sweepScopes() []explore.Scope {
	two := []explore.Job{{Chunks: []int{1, 2}, Batch: 1}}
	all := []explore.Scope{
		{Name: "sweep-lost", Description: "two chunks in two batches, sweeps of one row a step: a connection or a link breaks", Jobs: two,
			Faults: 1, Cut: true},
		{Name: "sweep-drain", Description: "two chunks in two batches, sweeps of one row a step: the receiver drains", Jobs: two,
			Faults: 1, Drain: true},
		{Name: "sweep-abandon", Description: "two deferred offers, sweeps of one row a step: their request is abandoned, or fetches late",
			Pull: true, Delay: true, Jobs: two, Faults: 1, DrawnFaults: []plan.Fault{plan.FaultRequestAbandoned, plan.FaultFetchDelayed}},
		{Name: "sweep-unreached", Description: "two deferred offers, sweeps of one row a step: a connection or a link breaks", Pull: true,
			Delay: true, Jobs: two, Faults: 1, Cut: true},
	}
	for i := range all {
		all[i].AdjustPlan = func(p *plan.Plan) { p.Bounds.Rows = 1 }
	}
	return all
}

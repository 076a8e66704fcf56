package agent

import (
	"slices"

	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The faults of an engine in a small world. A fault may occur at any moment.
const (
	faultCut    = "cut"    // the connection is cut, and bytes in flight are lost
	faultExit   = "exit"   // the process ends
	faultAbort  = "abort"  // the engine aborts a call
	faultDetach = "detach" // the engine detaches, perhaps with holdings
)

// smallScopes returns the small worlds in which an engine sends a chunk and another engine reads the chunk.
func smallScopes() []explore.Scope {
	scopes := []explore.Scope{
		{Name: "agent", Description: "an engine process sends a chunk through its agent, and a second engine process reads it"},
		{Name: "agent-cut", Description: "two engine processes send and read a chunk, the connection of one breaks", SystemFault: faultCut},
		{Name: "agent-exit", Description: "two engine processes send and read a chunk, one exits", SystemFault: faultExit},
		{Name: "agent-abort", Description: "two engine processes send and read a chunk, one aborts a call", SystemFault: faultAbort},
		{Name: "agent-detach", Description: "two engine processes send and read a chunk, one detaches", SystemFault: faultDetach},
	}
	for i := range scopes {
		s := &scopes[i]
		s.Jobs, s.AdjustPlan = []explore.Job{{Chunks: []int{1}}}, shapeAttached
		if s.SystemFault != "" {
			s.Faults = 1
		}
	}
	return scopes
}

// shapeAttached makes attached engines handle all jobs of a scope.
func shapeAttached(p *plan.Plan) {
	p.Topology.Flags = p.Topology.Flags.With(flowWord)
	for i := range p.Jobs {
		p.Jobs[i].Flags = p.Jobs[i].Flags.With(flowWord)
	}
}

// listFaults returns the faults of the given kind that may occur now.
func listFaults(w *pd.Cluster, how string) (all []world.Delivery) {
	for _, e := range stateOf(w).engines {
		d := world.Delivery{Kind: world.KindAttached, Node: -1, B: uint64(e.index)}
		switch {
		case e.exited:
			continue
		case how == faultCut && e.stream != nil:
			d.A = deliveryCut
		case how == faultExit:
			d.A = deliveryEnd
		case how == faultAbort && findWaitingTask(e) != nil:
			d.A = deliveryAbort
		case how == faultDetach && e.attached && !e.detaching:
			d.A = deliveryDetach
		default:
			continue
		}
		all = append(all, d)
	}
	return all
}

// findWaitingTask returns the first task of an engine with a call that may be aborted, or nil.
func findWaitingTask(e *engineProcess) *task {
	if i := slices.IndexFunc(e.tasks, (*task).isAbortable); i >= 0 && e.attached {
		return e.tasks[i]
	}
	return nil
}

// applyFault makes a fault of the given kind occur.
func applyFault(e *engineProcess, fault uint64) {
	switch fault {
	case deliveryCut:
		if e.stream != nil {
			e.stream.cut()
		}
	case deliveryAbort:
		if t := findWaitingTask(e); t != nil {
			t.abortCall(e)
		}
	case deliveryDetach:
		e.detachSession()
	}
	e.scheduleTurn(0)
}

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
	cut    = "cut"    // the connection is cut, and bytes in flight are lost
	exit   = "exit"   // the process ends
	abort  = "abort"  // the engine aborts a call
	detach = "detach" // the engine detaches, perhaps with holdings
)

// small returns the small worlds in which an engine sends a chunk and another engine reads the chunk.
func small() []explore.Scope {
	all := []explore.Scope{
		{Name: "agent", About: "an engine in a process of its own sends a chunk, and another reads it"},
		{Name: "agent-cut", About: "likewise, and the connection of one of them is cut", Harm: cut},
		{Name: "agent-exit", About: "likewise, and one of them ends", Harm: exit},
		{Name: "agent-abort", About: "likewise, and one of them aborts a call", Harm: abort},
		{Name: "agent-detach", About: "likewise, and one of them leaves", Harm: detach},
	}
	for i := range all {
		s := &all[i]
		s.Jobs, s.Shape = []explore.Job{{Chunks: []int{1}}}, ofProcesses
		if s.Harm != "" {
			s.Faults = 1
		}
	}
	return all
}

// ofProcesses makes attached engines handle all jobs of a scope.
func ofProcesses(p *plan.Plan) {
	p.Topology.Said = p.Topology.Said.With(word)
	for i := range p.Jobs {
		p.Jobs[i].Said = p.Jobs[i].Said.With(word)
	}
}

// harms returns the faults of the given kind that may occur now.
func harms(w *pd.Cluster, how string) (all []world.Delivery) {
	for _, e := range of(w).engines {
		d := world.Delivery{Kind: world.KindAttached, Node: -1, B: uint64(e.place)}
		switch {
		case e.gone:
			continue
		case how == cut && e.s != nil:
			d.A = cuts
		case how == exit:
			d.A = ends
		case how == abort && waiting(e) != nil:
			d.A = aborts
		case how == detach && e.attached && !e.leaving:
			d.A = detaches
		default:
			continue
		}
		all = append(all, d)
	}
	return all
}

// waiting returns the first task of an engine with a call that may be aborted, or nil.
func waiting(e *engineProcess) *task {
	if i := slices.IndexFunc(e.tasks, (*task).waits); i >= 0 && e.attached {
		return e.tasks[i]
	}
	return nil
}

// harmed makes a fault of the given kind occur.
func harmed(e *engineProcess, what uint64) {
	switch what {
	case cuts:
		if e.s != nil {
			e.s.cut()
		}
	case aborts:
		if t := waiting(e); t != nil {
			t.abort(e)
		}
	case detaches:
		e.detach()
	}
	e.wake(0)
}

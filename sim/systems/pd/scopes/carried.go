package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// carriedScopes returns the scopes in which chunks travel with the allocation request for their pages.
func carriedScopes() []explore.Scope {
	one, two := []explore.Job{{Chunks: []int{1}}}, []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	all := []explore.Scope{
		{Name: "carried", Description: "one chunk is carried inside the alloc request", Jobs: one},
		{Name: "carried-lost", Description: "as carried, and a request or a reply is lost", Jobs: one, Faults: 1,
			DrawnFaults: []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost}},
		{Name: "carried-cut", Description: "as carried, and a connection or a link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "carried-abandon", Description: "as carried, and the request is abandoned, or a command is aborted", Jobs: one, Faults: 1,
			Abort: true, DrawnFaults: []plan.Fault{plan.FaultRequestAbandoned}},
		{Name: "carried-crash", Description: "as carried, and a node crashes once", Jobs: one, Faults: 1, CrashSender: true,
			CrashReceiver: true},
		{Name: "carried-drain", Description: "as carried, and the receiver drains", Jobs: one, Faults: 1, Drain: true},
		{Name: "carried-leased", Description: "as carried over a leased plane, and a connection or a link breaks", Jobs: one, Leased: true,
			Faults: 1, Cut: true},
		{Name: "carried-waits", Description: "two chunks for one page: the second waits, and is then moved by the data plane", Jobs: two,
			ReceiverPages: 1},
	}
	for i := range all {
		all[i].AdjustPlan = func(p *plan.Plan) { p.Bounds.Carries = 1 << 10 }
	}
	return all
}

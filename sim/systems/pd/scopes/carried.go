package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// carried returns the scopes in which chunks travel with the allocation request for their pages.
func carried() []explore.Scope {
	one, two := []explore.Job{{Chunks: []int{1}}}, []explore.Job{{Chunks: []int{1}}, {Chunks: []int{2}}}
	all := []explore.Scope{
		{Name: "carried", About: "a chunk goes with the question for its page", Jobs: one},
		{Name: "carried-lost", About: "likewise, and a message or an answer is lost", Jobs: one, Faults: 1,
			Strikes: []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost}},
		{Name: "carried-cut", About: "likewise, and a connection or link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "carried-abandon", About: "likewise, and its request is abandoned, or a command aborted", Jobs: one, Faults: 1,
			Abort: true, Strikes: []plan.Fault{plan.FaultAbandon}},
		{Name: "carried-crash", About: "likewise, and one end dies", Jobs: one, Faults: 1, CrashSender: true,
			CrashReceiver: true},
		{Name: "carried-drain", About: "likewise, and the receiver drains", Jobs: one, Faults: 1, Drain: true},
		{Name: "carried-leased", About: "likewise under leases, and a connection or link breaks", Jobs: one, Leased: true,
			Faults: 1, Cut: true},
		{Name: "carried-waits", About: "two chunks for one page: the second waits, and goes by the plane", Jobs: two,
			ReceiverPages: 1},
	}
	for i := range all {
		all[i].Shape = func(p *plan.Plan) { p.Bounds.Carries = 1 << 10 }
	}
	return all
}

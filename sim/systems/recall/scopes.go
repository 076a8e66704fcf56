package recall

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// smallScopes returns the small worlds in which a prefill node recalls chunks from a decode node.
func smallScopes() []explore.Scope {
	back := []explore.Job{{Chunks: []int{1}}, {Chunks: []int{1}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no machine is notified of the loss
	scopes := []explore.Scope{
		{Name: "recall", Description: "one chunk is sent, and the sender recalls it", Jobs: back},
		{Name: "leased-recall", Description: "as recall, over a leased plane", Leased: true, Jobs: back},
		{Name: "recall-lost", Description: "one chunk is sent and recalled, and a request or a reply is lost", Jobs: back,
			Faults: 1, DrawnFaults: lost},
		{Name: "cache-lease", Description: "room for one chunk: a chunk is recalled while another chunk needs its page",
			SenderPages: 1, ReceiverPages: 1, Jobs: append(back[:2:2], explore.Job{Chunks: []int{2}})},
	}
	for i := range scopes {
		scopes[i].Cache, scopes[i].AdjustPlan = true, shapeRecall
	}
	return scopes
}

// shapeRecall makes the second job of a scope recall chunks.
func shapeRecall(p *plan.Plan) {
	p.Topology.Flags, p.Jobs[1].Flags = p.Topology.Flags.With(flowWord), plan.FlowFlags{flowWord: true}
}

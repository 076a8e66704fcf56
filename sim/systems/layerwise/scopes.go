package layerwise

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// smallScopes returns the small worlds in which a prefill node pushes chunks of two layers.
func smallScopes() []explore.Scope {
	one, two := []explore.Job{{Chunks: []int{1}}}, []explore.Job{{Chunks: []int{1, 2}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no machine is notified of the loss
	scopes := []explore.Scope{
		{Name: "layers", Description: "two chunks are pushed in two layers", Jobs: two},
		{Name: "leased-layers", Description: "one chunk is pushed in two layers over a leased plane", Leased: true, Jobs: one},
		{Name: "layers-preempted", Description: "two chunks are pushed in two layers, and the request is preempted after the first layer",
			Jobs: two},
		{Name: "layers-lost", Description: "one chunk is pushed in two layers, and a request or a reply is lost", Jobs: one,
			Faults: 1, DrawnFaults: lost},
		{Name: "layers-two", Description: "two prefill nodes push the same chunk in two layers, with room for both", Senders: 2,
			Jobs: []explore.Job{{Chunks: []int{1}}, {Sender: 1, Chunks: []int{1}}}},
	}
	for i := range scopes {
		scopes[i].SenderPages, scopes[i].ReceiverPages = 4, 4
		scopes[i].AdjustPlan = shapeLayers(scopes[i].Name == "layers-preempted")
	}
	return scopes
}

// shapeLayers makes all jobs of a scope layerwise, with or without a preemption.
func shapeLayers(preempt bool) func(p *plan.Plan) {
	return func(p *plan.Plan) {
		p.Topology.Flags = p.Topology.Flags.With(layerwiseFlag)
		for i := range p.Jobs {
			if p.Jobs[i].Flags = (plan.FlowFlags{layerwiseFlag: true}); preempt {
				p.Jobs[i].Flags = p.Jobs[i].Flags.With(preemptedFlag)
			}
		}
	}
}

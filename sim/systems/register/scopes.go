package register

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// halvesWord marks a job of a world in which the consumer has two ranks.
var halvesWord = plan.RegisterFlag(plan.FlowFlag{Name: "halves", CheckJob: func(p *plan.Plan, _ *plan.Job) string {
	if !p.Topology.Flags[flowWord] {
		return "halves needs topology.register; leave out halves, or set register"
	}
	return ""
}})

// smallScopes returns the small worlds with one or two requests. Registrations and finished blocks occur in either
// order.
func smallScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}, Receiver: 1}}
	two := []explore.Job{one[0], {Chunks: []int{2}, Receiver: 1}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no machine is notified of the loss
	scopes := []explore.Scope{
		{Name: "register", Description: "one request with registered blocks: registered and finished, in either order", Jobs: one},
		{Name: "register-batches", Description: "two requests with registered blocks: registered and finished, in any order", Jobs: two},
		{Name: "register-lost", Description: "as register, and a request or a reply is lost", Jobs: one, Faults: 1, DrawnFaults: lost},
		{Name: "register-abort", Description: "as register, and an engine cancels the request at any point", Jobs: one, Faults: 1,
			Abort: true},
		{Name: "register-stall", Description: "as register, and a process is frozen for any time: its lease may expire first", Jobs: one,
			Faults: 1, Stall: true},
		{Name: "register-crash", Description: "as register, and a node crashes once at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "register-ranks", Description: "two producer ranks write for one consumer rank", Senders: 3, Jobs: one},
		{Name: "register-ranks-lost", Description: "two producer ranks write for one consumer rank, and a request or a reply is lost",
			Senders: 3, Jobs: one, Faults: 1, DrawnFaults: lost},
		{Name: "register-halves", Description: "one producer rank writes for two consumer ranks", Senders: 3, Jobs: one},
		{Name: "leased-register", Description: "one request with registered blocks over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-register-lost", Description: "as leased-register, and a request or a reply is lost", Leased: true,
			Jobs: one, Faults: 1, DrawnFaults: lost},
		{Name: "leased-register-abort", Description: "as leased-register, and an engine cancels the request at any point",
			Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-register-stall", Description: "as leased-register, and a process is frozen for any time",
			Leased: true, Jobs: one, Faults: 1, Stall: true},
		{Name: "leased-register-ranks-lost",
			Description: "two producer ranks write over a leased plane, and a request or a reply is lost",
			Leased:      true, Senders: 3, Jobs: one, Faults: 1, DrawnFaults: lost},
	}
	for i := range scopes {
		scopes[i].Both, scopes[i].Senders = true, max(2, scopes[i].Senders)
		scopes[i].Receivers, scopes[i].AdjustPlan = scopes[i].Senders, shapeRegister(scopes[i].Name == "register-halves")
	}
	return scopes
}

// shapeRegister makes all jobs of a scope use registered blocks, with a consumer of two ranks or of one rank.
func shapeRegister(twoConsumers bool) func(*plan.Plan) {
	return func(p *plan.Plan) {
		p.Topology.Flags = p.Topology.Flags.With(flowWord)
		for i := range p.Jobs {
			if twoConsumers {
				p.Jobs[i].Flags = plan.FlowFlags{halvesWord: true}
			}
		}
	}
}

package register

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// halvesWord marks a job of a world in which the consumer has two ranks.
var halvesWord = plan.NewWord(plan.Word{Name: "halves", Job: func(p *plan.Plan, _ *plan.Job) string {
	if !p.Topology.Said[flowWord] {
		return "it needs topology.register; leave it out, or set that"
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
		{Name: "register", About: "one request with registered blocks: registered and finished, in either order", Jobs: one},
		{Name: "register-batches", About: "two requests with registered blocks: registered and finished, in any order", Jobs: two},
		{Name: "register-lost", About: "as register, and a request or a reply is lost", Jobs: one, Faults: 1, Strikes: lost},
		{Name: "register-abort", About: "as register, and an engine cancels the request at any point", Jobs: one, Faults: 1,
			Abort: true},
		{Name: "register-stall", About: "as register, and a process is frozen for any time: its lease may expire first", Jobs: one,
			Faults: 1, Stall: true},
		{Name: "register-crash", About: "as register, and a node crashes once at any point", Jobs: one, Faults: 1,
			CrashSender: true},
		{Name: "register-ranks", About: "two producer ranks write for one consumer rank", Senders: 3, Jobs: one},
		{Name: "register-ranks-lost", About: "two producer ranks write for one consumer rank, and a request or a reply is lost",
			Senders: 3, Jobs: one, Faults: 1, Strikes: lost},
		{Name: "register-halves", About: "one producer rank writes for two consumer ranks", Senders: 3, Jobs: one},
		{Name: "leased-register", About: "one request with registered blocks over a leased plane", Leased: true, Jobs: one},
		{Name: "leased-register-lost", About: "as leased-register, and a request or a reply is lost", Leased: true,
			Jobs: one, Faults: 1, Strikes: lost},
		{Name: "leased-register-abort", About: "as leased-register, and an engine cancels the request at any point",
			Leased: true, Jobs: one, Faults: 1, Abort: true},
		{Name: "leased-register-stall", About: "as leased-register, and a process is frozen for any time",
			Leased: true, Jobs: one, Faults: 1, Stall: true},
		{Name: "leased-register-ranks-lost",
			About:  "two producer ranks write over a leased plane, and a request or a reply is lost",
			Leased: true, Senders: 3, Jobs: one, Faults: 1, Strikes: lost},
	}
	for i := range scopes {
		scopes[i].Both, scopes[i].Senders = true, max(2, scopes[i].Senders)
		scopes[i].Receivers, scopes[i].Shape = scopes[i].Senders, shapeRegister(scopes[i].Name == "register-halves")
	}
	return scopes
}

// shapeRegister makes all jobs of a scope use registered blocks, with a consumer of two ranks or of one rank.
func shapeRegister(twoConsumers bool) func(*plan.Plan) {
	return func(p *plan.Plan) {
		p.Topology.Said = p.Topology.Said.With(flowWord)
		for i := range p.Jobs {
			if twoConsumers {
				p.Jobs[i].Said = plan.Said{halvesWord: true}
			}
		}
	}
}

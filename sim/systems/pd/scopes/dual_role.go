package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// dualRoleScopes returns the scopes of two nodes that each prefill and decode over the same pool and send to each
// other. If there are enough pages, no action of the engine may delay the peer, and no action of the peer may delay the
// engine. If there are not enough pages, the engine and the peer wait in the same queue.
func dualRoleScopes() []explore.Scope {
	each := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Receiver: 0, Chunks: []int{2}}}
	one := []explore.Job{{Receiver: 1, Chunks: []int{1}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost}
	each[0].Receiver = 1
	all := []explore.Scope{
		{Name: "both-one", Description: "one chunk is pushed between two nodes with both roles", Jobs: one},
		{Name: "both-one-crash", Description: "as both-one, and a node crashes once", Jobs: one, Faults: 1, CrashSender: true},
		{Name: "both-one-cut", Description: "as both-one, and a connection or a link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "both-one-drain", Description: "as both-one, and a node drains at any point", Jobs: one, Faults: 1, Drain: true},
		{Name: "both-pull", Description: "one chunk is pulled between two nodes with both roles", Pull: true, Jobs: one},
		{Name: "both-delayed", Description: "between two nodes with both roles, one chunk is offered, deferred and fetched", Pull: true,
			Delay: true, Jobs: one},
		{Name: "both-delayed-lost", Description: "as both-delayed, and a message is lost", Pull: true, Delay: true, Jobs: one, Faults: 1,
			DrawnFaults: lost},
		{Name: "both", Description: "two nodes with both roles send a chunk to each other", Jobs: each},
		{Name: "both-full", Description: "two nodes with both roles and one page each: the engine and the peer compete for the page",
			ReceiverPages: 1,
			SenderPages:   1, Jobs: each},
		{Name: "both-full-lost", Description: "as both-full, and a request or a reply is lost", ReceiverPages: 1, SenderPages: 1,
			Jobs: each, Faults: 1, DrawnFaults: lost},
	}
	for i := range all {
		all[i].Both, all[i].Senders, all[i].Receivers = true, 2, 2
	}
	return all
}

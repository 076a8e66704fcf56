package scopes

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// both returns the scopes of two nodes that each prefill and decode over the same pool and send to each other. If there
// are enough pages, no action of the engine may delay the peer, and no action of the peer may delay the engine. If
// there are not enough pages, the engine and the peer wait in the same queue.
func both() []explore.Scope {
	each := []explore.Job{{Chunks: []int{1}}, {Sender: 1, Receiver: 0, Chunks: []int{2}}}
	one := []explore.Job{{Receiver: 1, Chunks: []int{1}}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost}
	each[0].Receiver = 1
	all := []explore.Scope{
		{Name: "both-one", About: "one chunk, between two nodes of both sides", Jobs: one},
		{Name: "both-one-crash", About: "the same, either node dies once", Jobs: one, Faults: 1, CrashSender: true},
		{Name: "both-one-cut", About: "the same, one connection or link breaks", Jobs: one, Faults: 1, Cut: true},
		{Name: "both-one-drain", About: "the same, either node drains, at any moment", Jobs: one, Faults: 1, Drain: true},
		{Name: "both-pull", About: "one chunk is offered and read, between two nodes of both sides", Pull: true, Jobs: one},
		{Name: "both-delayed", About: "one chunk is kept and fetched, between two nodes of both sides", Pull: true,
			Delay: true, Jobs: one},
		{Name: "both-delayed-lost", About: "the same, one message is lost", Pull: true, Delay: true, Jobs: one, Faults: 1,
			Strikes: lost},
		{Name: "both", About: "two nodes of both sides send a chunk to each other", Jobs: each},
		{Name: "both-full", About: "the same, and each has one page: its engine and its peer wait for it", ReceiverPages: 1,
			SenderPages: 1, Jobs: each},
		{Name: "both-full-lost", About: "the same, one request or reply is lost", ReceiverPages: 1, SenderPages: 1,
			Jobs: each, Faults: 1, Strikes: lost},
	}
	for i := range all {
		all[i].Both, all[i].Senders, all[i].Receivers = true, 2, 2
	}
	return all
}

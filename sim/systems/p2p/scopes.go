package p2p

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// small are worlds of two nodes that share: what one was sent it lends to the other.
func small() []explore.Scope {
	there := []explore.Job{{Chunks: []int{1}, Receiver: 1}, {Chunks: []int{1}, Sender: 1}}
	more := []explore.Job{there[0], there[1], {Chunks: []int{2}, Receiver: 1}}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // nobody is told
	all := []explore.Scope{
		{Name: "share", About: "one chunk is sent, and brought back", Jobs: there},
		{Name: "leased-share", About: "likewise, on a leased plane", Leased: true, Jobs: there},
		{Name: "share-lost", About: "one chunk is sent and brought back, a question or an answer is lost", Jobs: there,
			Faults: 1, Strikes: lost},
		{Name: "push-share", About: "one chunk is sent, and written back by who has it", Jobs: there, Shape: writes},
		{Name: "leased-push-share", About: "likewise, on a leased plane", Leased: true, Jobs: there, Shape: writes},
		{Name: "push-share-lost", About: "one chunk is sent and written back, a question or an answer is lost", Jobs: there,
			Faults: 1, Strikes: lost, Shape: writes},
		{Name: "leased-push-share-lost", About: "likewise, on a leased plane", Leased: true, Jobs: there,
			Faults: 1, Strikes: lost, Shape: writes},
		{Name: "keep-share", About: "one chunk is sent, kept where it is by who has it brought, and fetched", Jobs: there,
			Shape: stays},
		{Name: "leased-keep-share", About: "likewise, on a leased plane", Leased: true, Jobs: there, Shape: stays},
		{Name: "keep-share-lost", About: "one chunk is sent, kept and fetched, a question or an answer is lost", Jobs: there,
			Faults: 1, Strikes: lost, Shape: stays},
		{Name: "share-evict", About: "one chunk is brought back while another one wants its page", Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "leased-share-evict", About: "likewise, on a leased plane", Leased: true, Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "arena-share", About: "one chunk is sent, and brought back from a copy", Jobs: there, Shape: copies},
		{Name: "leased-arena-share", About: "likewise, on a leased plane", Leased: true, Jobs: there, Shape: copies},
		{Name: "arena-share-fails", About: "likewise, and the copy fails, or a question or an answer is lost", Jobs: there,
			Faults: 1, Strikes: append(lost, plan.FaultDMA), Shape: copies},
		{Name: "arena-share-evict", About: "one chunk is brought back from a copy while another one wants its page",
			Jobs: more, SenderPages: 1, ReceiverPages: 1, Shape: copies},
	}
	for i := range all {
		all[i].Both, all[i].Senders, all[i].Receivers = true, 2, 2
		if all[i].Cache = true; all[i].Shape == nil {
			all[i].Shape = shares
		}
	}
	return all
}

// shares has the second job of a scope bring what there is of it.
func shares(p *plan.Plan) {
	p.Topology.Said, p.Jobs[1].Said = p.Topology.Said.With(word), plan.Said{word: true}
}

// copies has who has it copy it first.
func copies(p *plan.Plan) {
	shares(p)
	p.Topology.Said = p.Topology.Said.With(arena)
}

// stays has it stay where it is until it is fetched.
func stays(p *plan.Plan) {
	shares(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(keeping)
}

// writes has who has it write it.
func writes(p *plan.Plan) {
	shares(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(writing)
}

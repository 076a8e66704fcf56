package p2p

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// small returns the small worlds of nodes that share: a node lends a received chunk to another node.
func small() []explore.Scope {
	there := []explore.Job{{Chunks: []int{1}, Receiver: 1}, {Chunks: []int{1}, Sender: 1}}
	more := []explore.Job{there[0], there[1], {Chunks: []int{2}, Receiver: 1}}
	later := []explore.Job{there[0], there[1]}
	later[1].Act = 1
	askers := []explore.Job{
		there[0], {Chunks: []int{2}, Sender: 2, Receiver: 1, Act: 1}, // The owner of the chunk knows both nodes.
		{Chunks: []int{1}, Sender: 1, Act: 2}, {Chunks: []int{1}, Sender: 1, Receiver: 2, Act: 2},
	}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no machine is notified of the loss
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
		{Name: "share-alike", About: "one chunk is sent, and two others ask for it by one lookup id", Jobs: askers,
			Senders: 3, Shape: alike},
		{Name: "leased-share-alike", About: "likewise, on a leased plane", Leased: true, Jobs: askers, Senders: 3,
			Shape: alike},
		{Name: "push-share-late", About: "one chunk is sent, and written back by who has it: everything may be late then",
			Jobs: later, Timers: explore.TimersAny, Shape: writes},
		{Name: "leased-push-share-late", About: "likewise, on a leased plane", Leased: true, Jobs: later,
			Timers: explore.TimersAny, Shape: writes},
		{Name: "leased-push-share-cut", About: "likewise, and a connection or link breaks: the question may come twice",
			Leased: true, Jobs: later, Faults: 1, Cut: true, Shape: writes},
	}
	for i := range all {
		all[i].Both, all[i].Senders = true, max(2, all[i].Senders)
		all[i].Receivers = all[i].Senders
		if all[i].Cache = true; all[i].Shape == nil {
			all[i].Shape = shares
		}
	}
	return all
}

// shares makes the second job of a scope a share job.
func shares(p *plan.Plan) {
	p.Topology.Said, p.Jobs[1].Said = p.Topology.Said.With(word), plan.Said{word: true}
}

// alike makes two jobs bring the same chunk by lookups of the same name.
func alike(p *plan.Plan) {
	shares(p)
	p.Bounds.Peers = 4 // Each node looks chunks up over a different link than for sending.
	p.Jobs[1].Said, p.Jobs[2].Said, p.Jobs[3].Said = nil, plan.Said{word: true}, plan.Said{word: true, named: true}
}

// copies makes the owner of the chunk copy it into the arena first.
func copies(p *plan.Plan) {
	shares(p)
	p.Topology.Said = p.Topology.Said.With(arena)
}

// stays makes the chunk stay at the owner until the receiver fetches it.
func stays(p *plan.Plan) {
	shares(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(keeping)
}

// writes makes the owner of the chunk write it.
func writes(p *plan.Plan) {
	shares(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(writing)
}

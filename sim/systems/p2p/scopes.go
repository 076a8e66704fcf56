package p2p

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// smallScopes returns the small worlds of nodes that share: a node lends a received chunk to another node.
func smallScopes() []explore.Scope {
	there := []explore.Job{{Chunks: []int{1}, Receiver: 1}, {Chunks: []int{1}, Sender: 1}}
	more := []explore.Job{there[0], there[1], {Chunks: []int{2}, Receiver: 1}}
	later := []explore.Job{there[0], there[1]}
	later[1].Act = 1
	askers := []explore.Job{
		there[0], {Chunks: []int{2}, Sender: 2, Receiver: 1, Act: 1}, // The owner of the chunk knows both nodes.
		{Chunks: []int{1}, Sender: 1, Act: 2}, {Chunks: []int{1}, Sender: 1, Receiver: 2, Act: 2},
	}
	lost := []plan.Fault{plan.FaultRequestLost, plan.FaultReplyLost} // no machine is notified of the loss
	scopes := []explore.Scope{
		{Name: "share", Description: "one chunk is sent, and a peer brings it through a lookup", Jobs: there},
		{Name: "leased-share", Description: "as share, over a leased plane", Leased: true, Jobs: there},
		{Name: "share-lost", Description: "one chunk is sent and brought, and a request or a reply is lost", Jobs: there,
			Faults: 1, DrawnFaults: lost},
		{Name: "push-share", Description: "one chunk is sent, and the peer that has it writes it back on request", Jobs: there,
			AdjustPlan: shapePush},
		{Name: "leased-push-share", Description: "as push-share, over a leased plane", Leased: true, Jobs: there, AdjustPlan: shapePush},
		{Name: "push-share-lost", Description: "as push-share, and a request or a reply is lost", Jobs: there,
			Faults: 1, DrawnFaults: lost, AdjustPlan: shapePush},
		{Name: "leased-push-share-lost", Description: "as push-share-lost, over a leased plane", Leased: true, Jobs: there,
			Faults: 1, DrawnFaults: lost, AdjustPlan: shapePush},
		{Name: "keep-share", Description: "one chunk is sent; a second node defers the bring, and fetches the chunk later", Jobs: there,
			AdjustPlan: shapeKeep},
		{Name: "leased-keep-share", Description: "as keep-share, over a leased plane", Leased: true, Jobs: there, AdjustPlan: shapeKeep},
		{Name: "keep-share-lost", Description: "as keep-share, and a request or a reply is lost", Jobs: there,
			Faults: 1, DrawnFaults: lost, AdjustPlan: shapeKeep},
		{Name: "share-evict", Description: "a peer brings one chunk while another chunk needs its page", Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "leased-share-evict", Description: "as share-evict, over a leased plane", Leased: true, Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "arena-share", Description: "one chunk is sent, and a peer reads a copy of it from the arena", Jobs: there,
			AdjustPlan: shapeArena},
		{Name: "leased-arena-share", Description: "a peer reads a copy of a chunk over a leased plane", Leased: true, Jobs: there,
			AdjustPlan: shapeArena},
		{Name: "arena-share-fails", Description: "a peer reads a copy of a chunk, and the copy fails, or a request or a reply is lost",
			Jobs:   there,
			Faults: 1, DrawnFaults: append(lost, plan.FaultDMAFailed), AdjustPlan: shapeArena},
		{Name: "arena-share-evict", Description: "a peer reads a copy of a chunk while another chunk needs its page",
			Jobs: more, SenderPages: 1, ReceiverPages: 1, AdjustPlan: shapeArena},
		{Name: "share-alike", Description: "one chunk is sent, and two peers request it under the same lookup ID", Jobs: askers,
			Senders: 3, AdjustPlan: shapeAlias},
		{Name: "leased-share-alike", Description: "as share-alike, over a leased plane", Leased: true, Jobs: askers, Senders: 3,
			AdjustPlan: shapeAlias},
		{Name: "push-share-late", Description: "as push-share, and any deadline may expire before the write",
			Jobs: later, Timers: explore.TimersAny, AdjustPlan: shapePush},
		{Name: "leased-push-share-late", Description: "as push-share-late, over a leased plane", Leased: true, Jobs: later,
			Timers: explore.TimersAny, AdjustPlan: shapePush},
		{Name: "leased-push-share-cut",
			Description: "as push-share over a leased plane, a connection or a link breaks: the request may arrive twice",
			Leased:      true, Jobs: later, Faults: 1, Cut: true, AdjustPlan: shapePush},
	}
	for i := range scopes {
		scopes[i].Both, scopes[i].Senders = true, max(2, scopes[i].Senders)
		scopes[i].Receivers = scopes[i].Senders
		if scopes[i].Cache = true; scopes[i].AdjustPlan == nil {
			scopes[i].AdjustPlan = shapeShare
		}
	}
	return scopes
}

// shapeShare makes the second job of a scope a share job.
func shapeShare(p *plan.Plan) {
	p.Topology.Flags, p.Jobs[1].Flags = p.Topology.Flags.With(flowWord), plan.FlowFlags{flowWord: true}
}

// shapeAlias makes two jobs bring the same chunk by lookups of the same name.
func shapeAlias(p *plan.Plan) {
	shapeShare(p)
	p.Bounds.Peers = 5 // Each node looks chunks up over a different link than for sending.
	p.Jobs[1].Flags, p.Jobs[2].Flags, p.Jobs[3].Flags = nil, plan.FlowFlags{flowWord: true}, plan.FlowFlags{flowWord: true, aliasWord: true}
}

// shapeArena makes the owner of the chunk copy it into the arena first.
func shapeArena(p *plan.Plan) {
	shapeShare(p)
	p.Topology.Flags = p.Topology.Flags.With(arenaWord)
}

// shapeKeep makes the chunk stay at the owner until the receiver fetches it.
func shapeKeep(p *plan.Plan) {
	shapeShare(p)
	p.Jobs[1].Flags = p.Jobs[1].Flags.With(keepWord)
}

// shapePush makes the owner of the chunk write it.
func shapePush(p *plan.Plan) {
	shapeShare(p)
	p.Jobs[1].Flags = p.Jobs[1].Flags.With(pushWord)
}

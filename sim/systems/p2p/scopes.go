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
		{Name: "share", About: "one chunk is sent, and a peer brings it through a lookup", Jobs: there},
		{Name: "leased-share", About: "as share, over a leased plane", Leased: true, Jobs: there},
		{Name: "share-lost", About: "one chunk is sent and brought, and a request or a reply is lost", Jobs: there,
			Faults: 1, Strikes: lost},
		{Name: "push-share", About: "one chunk is sent, and the peer that has it writes it back on request", Jobs: there, Shape: shapePush},
		{Name: "leased-push-share", About: "as push-share, over a leased plane", Leased: true, Jobs: there, Shape: shapePush},
		{Name: "push-share-lost", About: "as push-share, and a request or a reply is lost", Jobs: there,
			Faults: 1, Strikes: lost, Shape: shapePush},
		{Name: "leased-push-share-lost", About: "as push-share-lost, over a leased plane", Leased: true, Jobs: there,
			Faults: 1, Strikes: lost, Shape: shapePush},
		{Name: "keep-share", About: "one chunk is sent; a second node defers the bring, and fetches the chunk later", Jobs: there,
			Shape: shapeKeep},
		{Name: "leased-keep-share", About: "as keep-share, over a leased plane", Leased: true, Jobs: there, Shape: shapeKeep},
		{Name: "keep-share-lost", About: "as keep-share, and a request or a reply is lost", Jobs: there,
			Faults: 1, Strikes: lost, Shape: shapeKeep},
		{Name: "share-evict", About: "a peer brings one chunk while another chunk needs its page", Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "leased-share-evict", About: "as share-evict, over a leased plane", Leased: true, Jobs: more, SenderPages: 1,
			ReceiverPages: 1},
		{Name: "arena-share", About: "one chunk is sent, and a peer reads a copy of it from the arena", Jobs: there, Shape: shapeArena},
		{Name: "leased-arena-share", About: "a peer reads a copy of a chunk over a leased plane", Leased: true, Jobs: there, Shape: shapeArena},
		{Name: "arena-share-fails", About: "a peer reads a copy of a chunk, and the copy fails, or a request or a reply is lost", Jobs: there,
			Faults: 1, Strikes: append(lost, plan.FaultDMA), Shape: shapeArena},
		{Name: "arena-share-evict", About: "a peer reads a copy of a chunk while another chunk needs its page",
			Jobs: more, SenderPages: 1, ReceiverPages: 1, Shape: shapeArena},
		{Name: "share-alike", About: "one chunk is sent, and two peers request it under the same lookup ID", Jobs: askers,
			Senders: 3, Shape: shapeAlias},
		{Name: "leased-share-alike", About: "as share-alike, over a leased plane", Leased: true, Jobs: askers, Senders: 3,
			Shape: shapeAlias},
		{Name: "push-share-late", About: "as push-share, and any deadline may expire before the write",
			Jobs: later, Timers: explore.TimersAny, Shape: shapePush},
		{Name: "leased-push-share-late", About: "as push-share-late, over a leased plane", Leased: true, Jobs: later,
			Timers: explore.TimersAny, Shape: shapePush},
		{Name: "leased-push-share-cut", About: "as push-share over a leased plane, a connection or a link breaks: the request may arrive twice",
			Leased: true, Jobs: later, Faults: 1, Cut: true, Shape: shapePush},
	}
	for i := range scopes {
		scopes[i].Both, scopes[i].Senders = true, max(2, scopes[i].Senders)
		scopes[i].Receivers = scopes[i].Senders
		if scopes[i].Cache = true; scopes[i].Shape == nil {
			scopes[i].Shape = shapeShare
		}
	}
	return scopes
}

// shapeShare makes the second job of a scope a share job.
func shapeShare(p *plan.Plan) {
	p.Topology.Said, p.Jobs[1].Said = p.Topology.Said.With(flowWord), plan.Said{flowWord: true}
}

// shapeAlias makes two jobs bring the same chunk by lookups of the same name.
func shapeAlias(p *plan.Plan) {
	shapeShare(p)
	p.Bounds.Peers = 4 // Each node looks chunks up over a different link than for sending.
	p.Jobs[1].Said, p.Jobs[2].Said, p.Jobs[3].Said = nil, plan.Said{flowWord: true}, plan.Said{flowWord: true, aliasWord: true}
}

// shapeArena makes the owner of the chunk copy it into the arena first.
func shapeArena(p *plan.Plan) {
	shapeShare(p)
	p.Topology.Said = p.Topology.Said.With(arenaWord)
}

// shapeKeep makes the chunk stay at the owner until the receiver fetches it.
func shapeKeep(p *plan.Plan) {
	shapeShare(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(keepWord)
}

// shapePush makes the owner of the chunk write it.
func shapePush(p *plan.Plan) {
	shapeShare(p)
	p.Jobs[1].Said = p.Jobs[1].Said.With(pushWord)
}

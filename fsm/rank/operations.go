package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
)

// An Operation is something in progress, for operators: a command of the engine, or what a peer has requested here.
type Operation struct {
	// Kind is "put", "get", "fetch", "recall", "shared get", "layerwise" or "reserve" for a command of the engine, and
	// "receive" for pages that a peer wants, or has been granted.
	Kind string
	// Stage is what the operation does or waits for. The stages of a put are the phases of its report (effects.Phase), and
	// "ending" after its outcome.
	Stage string
	Peer  effects.Incarnation // zero: no peer, or one that is not known yet
	Addr  effects.Addr        // where a peer takes requests of this node; zero: there is no such peer
	// Chunks is zero for what a peer has requested, of which only the pages are recorded.
	Chunks, Pages int
	Since         effects.Time
	Until         effects.Time // when the operation ends at the latest; zero if that is not known
	Delivered     bool         // the engine has the outcome, and the peer or the memory is not finished with
}

// AppendOperations appends what is in progress, in the order of the tables.
func (r *Rank) AppendOperations(to []Operation) []Operation {
	r.eachOperation(func(x *kernel.Operation) {
		to = append(to, Operation{Kind: x.Kind, Stage: x.Stage, Peer: x.Peer, Addr: x.Addr, Chunks: x.Chunks, Pages: x.Pages,
			Since: x.Since, Until: x.Until, Delivered: x.Delivered})
	})
	return to
}

// eachOperation calls visit with everything in progress, in the order of the tables. Registered blocks are not among it.
func (r *Rank) eachOperation(visit func(*kernel.Operation)) {
	visitPut := func(x *put.Row) {
		op := kernel.Operation{Kind: "put", Stage: x.Phase(&r.links).String(), Outbound: x.Peer, Peer: x.PeerID, Chunks: x.Size(),
			Addr:  effects.Addr{Host: x.PeerAddr.Host, Port: x.PeerAddr.AllocPort},
			Pages: len(x.Pages), Since: x.Began(), Until: x.Deadline, Delivered: x.IsDelivered()}
		if x.Grant != 0 {
			op.FromPeer = len(x.Pages)
		}
		if op.Delivered {
			op.Stage = "ending"
		}
		visit(&op)
	}
	r.pushSource.EachPut(visitPut)
	r.pullSource.EachPut(visitPut)
	r.layers.EachOperation(&r.timers, visit)
	r.recallSource.EachOperation(visit)
	r.p2pRequester.EachOperation(visit)
	r.sharedRooms.Gets.EachOperation(&r.timers, visit)
	r.sharedRooms.Fetches.EachOperation(visit)
	r.commands.EachWaitingReserve(&r.timers, visit)
	r.sharedRooms.Pending.EachWaiting(func(x *allocqueue.Row) {
		op := kernel.Operation{Kind: "receive", Stage: "waiting for pages", Class: x.Class, Peer: x.Peer, Pages: int(x.PagesMax),
			Since: x.ArrivedAt}
		op.Until, _ = r.timers.DeadlineOf(x.Timer())
		visit(&op)
	})
	r.sharedRooms.Landings.EachLanding(func(x *landing.Landing) {
		op := kernel.Operation{Kind: "receive", Stage: "wire", Class: x.Class, Peer: x.Peer, Pages: x.PageCount(), Since: x.GrantedAt(),
			Until: x.Expires}
		switch {
		case x.Revoking:
			op.Stage = "quarantine"
		case x.Verifying:
			op.Stage = "verifying"
		}
		visit(&op)
	})
}

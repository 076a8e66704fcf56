package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
)

// The functions below pass what happened to a row on to the flow that owns the row, where this is neither a completion
// nor a deadline.

// tryRequest lets the owner of a pending request serve the request if that is possible now. If not, tryRequest returns
// what the request lacks.
func (r *Rank) tryRequest(e *flow.Env, q *allocqueue.Row) (allocqueue.TryResult, allocqueue.Shortfall) {
	return r.flowOf(q.Owner).(flow.Target).TryServe(e, q)
}

// signalRow notifies an owner of an event that concerns its row h.
func (r *Rank) signalRow(e *flow.Env, owner kernel.Owner, h table.Handle, s flow.Signal) {
	r.flowOf(owner).OnSignal(e, kernel.Ref{Owner: owner, Subject: h}, s)
}

// refuseRequest has the owner of a pending request reply with an error and remove the request.
func (r *Rank) refuseRequest(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	r.signalRow(e, e.Pending.Get(h).Owner, h, flow.Signal{Kind: flow.RequestRefused, Code: code, Why: why})
}

// expireRequest refuses a pending request that has waited for as long as it may.
func (r *Rank) expireRequest(e *flow.Env, h table.Handle) {
	q := e.Pending.OnTimer(&e.Env, h)
	if q.AwaitsLink {
		r.refuseRequest(e, h, effects.Unreachable, &effects.Why{
			Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.cfg.AllocTimeout.String() + " at the most",
			Theirs: "no connection to its pages yet",
		})
		return
	}
	r.refuseRequest(e, h, effects.NoMemory, e.NoRoom(q))
}

// endLanding ends a landing for a reason of this rank.
func (r *Rank) endLanding(e *flow.Env, x *landing.Landing, code effects.Code) {
	r.signalRow(e, x.Owner, x.Handle(), flow.Signal{Kind: flow.LandingEnded, Code: code})
}

// onConnLost reports a lost connection to its owner. If the connection is inbound, the pending requests that arrived on
// the connection are condemned.
func (r *Rank) onConnLost(e *flow.Env, x *effects.ConnLost) {
	if ref := r.conns.Find(x.Conn); ref.Owner != kernel.OwnerNone {
		r.flowOf(ref.Owner).Step(e, ref, x)
		return
	}
	r.commands.OnConnLost(&e.Env, x.Conn)
	if e.Pending.CondemnConn(x.Conn) {
		r.sweeps.byKind[sweepConnLost].RequestPass()
		r.continueSweeps(e)
	}
}

// onLinkLost handles the loss of our link to a peer's pages (x.Link is set), or of a peer's link to our pages (x.Link
// is 0). On fenced planes the loss of a peer's link to our pages means that the peer is silent.
func (r *Rank) onLinkLost(e *flow.Env, x *effects.LinkLost) {
	if x.Link != 0 {
		r.links.OnLinkLost(&e.Env, x.Link)
		if class := r.links.OnReachLost(&e.Env, x.Link); class != 0 || r.cfg.Keeps {
			r.pullTarget.LinkLost(e, class, x.Link)
		}
	}
	silent := x.Link == 0 && !r.cfg.Leased
	for _, owner := range r.flows.peerWatchers {
		r.flowOf(owner).(flow.PeerWatcher).OnPeerLost(e, x.Peer, silent)
	}
	if class := r.links.OnInboundLost(&e.Env, x.Peer, silent); class != 0 {
		r.onPeerLost(e, class, silent)
	}
}

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

// try lets the owner of a pending request serve the request if that is possible now. If not, try returns what the
// request lacks.
func (r *Rank) try(e *flow.Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall) {
	return r.owner(q.Owner).(flow.Target).Try(e, q)
}

// signal notifies an owner of an event that concerns its row h.
func (r *Rank) signal(e *flow.Env, owner kernel.Owner, h table.Handle, s flow.Signal) {
	r.owner(owner).Signal(e, kernel.Ref{Owner: owner, Subject: h}, s)
}

// refuse has the owner of a pending request reply with an error and remove the request.
func (r *Rank) refuse(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	r.signal(e, e.Pending.Get(h).Owner, h, flow.Signal{Kind: flow.Refused, Code: code, Why: why})
}

// waitedTooLong refuses a pending request that has waited for as long as it may.
func (r *Rank) waitedTooLong(e *flow.Env, h table.Handle) {
	q := e.Pending.Due(&e.Env, h)
	if q.Linking {
		r.refuse(e, h, effects.Unreachable, &effects.Why{
			Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.cfg.AllocTimeout.String() + " at the most",
			Theirs: "no connection to its pages yet",
		})
		return
	}
	r.refuse(e, h, effects.NoMemory, e.NoRoom(q))
}

// end ends a landing for a reason of this rank.
func (r *Rank) end(e *flow.Env, x *landing.Landing, code effects.Code) {
	r.signal(e, x.Owner, x.Handle(), flow.Signal{Kind: flow.Ended, Code: code})
}

// onConnLost reports a lost connection to its owner. If the connection is inbound, the pending requests that arrived on
// the connection are condemned.
func (r *Rank) onConnLost(e *flow.Env, x *effects.ConnLost) {
	if ref := r.conns.Find(x.Conn); ref.Owner != kernel.OwnerNone {
		r.owner(ref.Owner).Step(e, ref, x)
		return
	}
	r.commands.ConnLost(&e.Env, x.Conn)
	if e.Pending.HangUp(x.Conn) {
		r.sweeps.of[sweepHungUp].Want()
		r.sweep(e)
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
	for _, of := range r.flows.watchers {
		r.owner(of).(flow.PeerWatcher).PeerLost(e, x.Peer, silent)
	}
	if class := r.links.OnInboundLost(&e.Env, x.Peer, silent); class != 0 {
		r.peerLost(e, class, silent)
	}
}

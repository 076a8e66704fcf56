package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
)

// Whose something is, in one place for each kind of news. Each owner is called by its own type: through an interface
// the step's Env would be allocated with each event.

// tell hands an owner what became of what it asked for.
func (r *Rank) tell(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerLink:
		r.links.Step(&e.Env, ref, ev)
	case kernel.OwnerEngine:
		r.commands.Step(&e.Env, ref, ev)
	case kernel.OwnerPushSource:
		r.pushSource.Step(e, ref, ev)
	case kernel.OwnerPullSource:
		r.pullSource.Step(e, ref, ev)
	case kernel.OwnerPushTarget:
		r.pushTarget.Step(e, ref, ev)
	case kernel.OwnerPullTarget, kernel.OwnerPipeline, kernel.OwnerNotices, kernel.OwnerLease:
		r.pullTarget.Step(e, ref, ev)
	case kernel.OwnerRecallSource:
		r.recallSource.Step(e, ref, ev)
	case kernel.OwnerRecallTarget:
		r.recallTarget.Step(e, ref, ev)
	default:
		kernel.Foreign("an owner")
	}
}

// due hands an owner a deadline.
func (r *Rank) due(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerLink:
		r.links.OnTimer(&e.Env, ref)
	case kernel.OwnerEngine:
		r.commands.Due(&e.Env, ref)
	case kernel.OwnerGets:
		e.Gets.Due(&e.Env, &e.Store, ref.Subject)
	case kernel.OwnerStore:
		e.Store.Due(ref.Subject, &e.Env)
	case kernel.OwnerPending:
		r.waitedTooLong(e, ref.Subject)
	case kernel.OwnerPushSource:
		r.pushSource.Due(e, ref)
	case kernel.OwnerPullSource:
		r.pullSource.Due(e, ref)
	case kernel.OwnerPushTarget:
		r.pushTarget.Due(e, ref)
	case kernel.OwnerPullTarget, kernel.OwnerPipeline, kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerDeferred:
		r.pullTarget.Due(e, ref)
	case kernel.OwnerRecallSource:
		r.recallSource.Due(e, ref)
	case kernel.OwnerRecallTarget:
		r.recallTarget.Due(e, ref)
	case kernel.OwnerRank:
		r.drain.timer = 0
		r.endDrain(e, effects.Expired)
	default:
		kernel.Foreign("an owner")
	}
}

// signal tells the target that something of its is to end.
func (r *Rank) signal(e *flow.Env, owner kernel.Owner, h table.Handle, s flow.Signal) {
	ref := kernel.Ref{Owner: owner, Subject: h}
	if owner == kernel.OwnerPullTarget {
		r.pullTarget.Signal(e, ref, s)
		return
	}
	r.pushTarget.Signal(e, ref, s)
}

// try serves a request whose turn it is, if it can be now.
func (r *Rank) try(e *flow.Env, q *pending.Row) (pending.Tried, pending.Shortfall) {
	if q.Owner == kernel.OwnerPullTarget {
		return r.pullTarget.Try(e, q)
	}
	return r.pushTarget.Try(e, q)
}

// refuse has whoever waits for pages answered that it waits in vain.
func (r *Rank) refuse(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	r.signal(e, e.Pending.Get(h).Owner, h, flow.Signal{Kind: flow.Refused, Code: code, Why: why})
}

// waitedTooLong refuses who waited as long as it may.
func (r *Rank) waitedTooLong(e *flow.Env, h table.Handle) {
	q := e.Pending.Due(&e.Env, h)
	if q.Linking {
		r.refuse(e, h, effects.Unreachable, &effects.Why{
			Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.cfg.AllocTimeout.String() + " at the most",
			Theirs: "no connection to its pages yet",
		})
		return
	}
	r.refuse(e, h, effects.NoMemory, flow.NoPages(&e.Env, int(q.Keys)))
}

// end ends a landing for a reason of ours.
func (r *Rank) end(e *flow.Env, x *land.Landing, code effects.Code) {
	r.signal(e, x.Owner, x.Handle(), flow.Signal{Kind: flow.Ended, Code: code})
}

// onConnLost tells whose a connection was that it is gone, and forgets who waits on it for an answer.
func (r *Rank) onConnLost(e *flow.Env, x *effects.ConnLost) {
	if ref := r.conns.Find(x.Conn); ref.Owner != kernel.OwnerNone {
		r.tell(e, ref, x)
		return
	}
	r.commands.ConnLost(&e.Env, x.Conn)
	if r.pullTarget.ConnLost(e, x.Conn) {
		return
	}
	for slot := range e.Pending.Slots() {
		if h, q := e.Pending.At(slot); h != 0 && q.Conn == x.Conn {
			e.Out.Mark(pending.MarkAskerLost)
			e.Pending.Remove(&e.Env, h)
		}
	}
}

// onLinkLost handles the end of a data-plane link, or of a peer.
func (r *Rank) onLinkLost(e *flow.Env, x *effects.LinkLost) {
	if x.Link != 0 {
		r.links.OnLinkLost(&e.Env, x.Link)
		e.Pending.Wake() // Whom pages were kept for may have lost the way to what it offers.
		if class := r.links.OnReachLost(&e.Env, x.Link); class != 0 {
			r.pullTarget.LinkLost(e, class, x.Link)
		}
	}
	r.links.OnInboundLost(&e.Env, x.Peer)
	e.Landings.PeerLost(&e.Env, x.Peer)
}

package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
)

// What is told beyond a completion or a deadline, by whose it is.

// try serves a request whose turn it is, if it can be now.
func (r *Rank) try(e *flow.Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall) {
	return r.owner(q.Owner).(flow.Target).Try(e, q)
}

// signal tells an owner what becomes of something of its.
func (r *Rank) signal(e *flow.Env, owner kernel.Owner, h table.Handle, s flow.Signal) {
	r.owner(owner).Signal(e, kernel.Ref{Owner: owner, Subject: h}, s)
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
	r.refuse(e, h, effects.NoMemory, e.NoRoom(q))
}

// end ends a landing for a reason of ours.
func (r *Rank) end(e *flow.Env, x *landing.Landing, code effects.Code) {
	r.signal(e, x.Owner, x.Handle(), flow.Signal{Kind: flow.Ended, Code: code})
}

// onConnLost tells whose a connection was that it is gone, and condemns who waits on it for an answer.
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

// onLinkLost handles the end of a data-plane link, or of a peer.
func (r *Rank) onLinkLost(e *flow.Env, x *effects.LinkLost) {
	if x.Link != 0 {
		r.links.OnLinkLost(&e.Env, x.Link)
		if class := r.links.OnReachLost(&e.Env, x.Link); class != 0 || r.cfg.Keeps {
			r.pullTarget.LinkLost(e, class, x.Link)
		}
	}
	if r.cfg.Shares {
		r.p2pRequester.LoseWriter(e, x.Peer)
	}
	silent := x.Link == 0 && !r.cfg.Leased
	if r.cfg.registers() {
		r.consumer.Lost(e, x.Peer)
		if silent {
			r.producer.Lost(e, x.Peer)
		}
	}
	if class := r.links.OnInboundLost(&e.Env, x.Peer, silent); class != 0 {
		r.peerLost(e, class, silent)
	}
}

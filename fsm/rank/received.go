package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/protocol"
)

// onReceived routes a message by its channel and, where two sides share one, by its tag.
func (r *Rank) onReceived(e *flow.Env, x *effects.Received) {
	v := &e.Env
	switch role := r.cfg.Role; {
	case x.Channel == effects.ChannelRegister && r.cfg.registers():
		r.producer.Step(e, kernel.Ref{}, x)
	case x.Channel != effects.ChannelInit && r.cfg.registers():
		unserved(v, x)
	case x.Channel == effects.ChannelQuery && r.cfg.answers():
		r.recallTarget.Step(e, kernel.Ref{}, x)
	case (x.Channel == effects.ChannelLookup || x.Channel == effects.ChannelPeerDone) && r.cfg.Shares:
		r.p2pOwner.Step(e, kernel.Ref{}, x)
	case x.Channel == effects.ChannelDone && role.Sends():
		r.pullSource.Step(e, kernel.Ref{}, x)
	case x.Channel == effects.ChannelAlloc && role.Receives():
		r.onAsked(e, x)
	case x.Channel == effects.ChannelInit && role.Sends() && x.Request != 0 &&
		protocol.HasTag(x.Body, protocol.TagRenewRequest, &r.cfg.Wire) && r.onRenew(e, x):
	case x.Channel == effects.ChannelInit && role.Receives():
		r.links.OnInit(v, x, r.busy())
		if class := r.links.Replaced(); class != 0 { // It is another peer's from now on.
			r.pullTarget.ClassLeft(e, class)
			if r.cfg.Shares {
				r.p2pOwner.ClassLeft(class)
			}
			if r.cfg.registers() {
				r.producer.ClassLeft(class)
			}
			r.rooms.Landings.Left(class)
			r.rooms.Ended.Left(class)
		}
	case x.Channel == effects.ChannelInit && x.Request != 0:
		r.links.RefuseInit(v, x)
	default:
		unserved(v, x)
	}
}

// onAsked handles a request for pages or an offer. Every one is answered, at once or when there is memory.
func (r *Rank) onAsked(e *flow.Env, x *effects.Received) {
	switch {
	case x.Request == 0:
	case protocol.HasTag(x.Body, protocol.TagEndRequest, &r.cfg.Wire):
		r.endTarget.Take(e, x)
	case protocol.HasTag(x.Body, protocol.TagPullReadyNotif, &r.cfg.Wire):
		r.pullTarget.Step(e, kernel.Ref{}, x)
	default:
		r.pushTarget.Step(e, kernel.Ref{}, x)
	}
}

// onRenew handles a reader's word on its leases. Each id is done with before the next is looked for: the end of a lease
// may free memory and let go on who waited for that, and an id said twice finds nothing the second time. Of the leases
// that it has finished with those end that this step has work for: what the answer does not confirm is said again.
func (r *Rank) onRenew(e *flow.Env, x *effects.Received) bool {
	v := &e.Env
	m := &r.renewals
	if !m.Begin(v, &r.cfg.Wire, x) {
		return false
	}
	for i, id := range m.Finished() {
		if i > 0 && !e.Work.Left() {
			e.Out.Mark(flow.Marks.WordsCut)
			break
		}
		e.Work.Look()
		if ref, ok := r.leased(v, id); ok {
			m.Known()
			r.signal(e, ref.Owner, ref.Subject, flow.Signal{Kind: flow.LeaseEnded})
		}
		m.Ended(id)
	}
	for _, id := range m.Wanted() {
		what, ttl := lease.Gone, effects.Duration(0)
		if ref, ok := r.leased(v, id); ok {
			what, ttl = r.owner(ref.Owner).(flow.Lender).Extend(e, ref)
		}
		m.Extended(v, id, what, ttl)
	}
	m.Reply(v, x.Request)
	return true
}

// leased is who granted the lease that a reader speaks of, if it stands and is that reader's.
func (r *Rank) leased(v *env.Env, id uint64) (kernel.Ref, bool) {
	ref := v.Pools.Owner(effects.GrantID(id))
	if ref.Owner == kernel.OwnerNone {
		return ref, false
	}
	of, lends := r.owner(ref.Owner).(flow.Lender)
	return ref, lends && r.renewals.Its(of.Lease(ref), id)
}

// unserved notes a message on a channel that this rank does not serve.
func unserved(v *env.Env, e *effects.Received) {
	v.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Unsupported, ID: uint64(e.Conn),
		Why: &effects.Why{Stage: effects.StageLink, Field: "channel", Theirs: e.Channel.String(), Ours: "not served"},
	})
}

// busy counts what is kept for each class beside its pages, as receivers do, and what is leased to it.
func (r *Rank) busy() []uint32 {
	all := r.rooms.Busy()
	if r.cfg.answers() {
		r.recallTarget.Loans().Busy(all)
	}
	if r.cfg.Shares {
		r.p2pOwner.Loans().Busy(all)
	}
	if r.cfg.registers() {
		r.producer.Busy(all)
	}
	return all
}

package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/protocol"
)

// onReceived passes a message to the room or the flow that serves its channel and, if several flows serve the channel,
// its tag. Each allocation request and each offer gets a reply, at once or when there is memory.
func (r *Rank) onReceived(e *flow.Env, x *effects.Received) {
	if x.Channel == effects.ChannelInit {
		r.onInit(e, x)
		return
	}
	by, ok := r.server(x)
	switch {
	case !ok:
		unserved(&e.Env, x)
	case x.Channel == effects.ChannelAlloc && x.Request == 0: // The sender expects no reply.
	default:
		by.Receive(e, x)
	}
}

// onInit handles a message on the init channel: a handshake or a lease renewal.
func (r *Rank) onInit(e *flow.Env, x *effects.Received) {
	v := &e.Env
	switch role := r.cfg.Role; {
	case role.Sends() && x.Request != 0 &&
		protocol.HasTag(x.Body, protocol.TagRenewRequest, &r.cfg.Wire) && r.onRenew(e, x):
	case role.Receives():
		r.links.OnInit(v, x, r.busy())
		if class := r.links.Replaced(); class != 0 { // The class belongs to another peer from now on.
			for _, of := range r.flows.keepers {
				r.owner(of).(flow.ClassKeeper).ClassLeft(e, class)
			}
			r.rooms.Landings.Left(class)
			r.rooms.Ended.Left(class)
		}
	case x.Request != 0:
		r.links.RefuseInit(v, x)
	default:
		unserved(v, x)
	}
}

// onRenew handles a renewal request, in which a reader lists the leases to extend and the leases that the reader has
// finished with. onRenew reports false if the message is not a renewal.
//
// Each id is handled completely before the next id is looked up: the end of a lease may free memory and so change other
// rows, and an id that is listed twice must not be found the second time. Of the finished leases, only as many end as
// the step has work for; the reader repeats the ids that the reply does not confirm.
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

// leased returns the owner of the lease with this id. leased reports false unless the lease is in force and was given
// to the reader that sent the renewal (M2).
func (r *Rank) leased(v *env.Env, id uint64) (kernel.Ref, bool) {
	ref := v.Pools.Owner(effects.GrantID(id))
	if ref.Owner == kernel.OwnerNone {
		return ref, false
	}
	of, lends := r.owner(ref.Owner).(flow.Lender)
	return ref, lends && r.renewals.Its(of.Lease(ref), id)
}

// unserved reports a message on a channel that this rank does not serve.
func unserved(v *env.Env, e *effects.Received) {
	v.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Unsupported, ID: uint64(e.Conn),
		Why: &effects.Why{Stage: effects.StageLink, Field: "channel", Theirs: e.Channel.String(), Ours: "not served"},
	})
}

// busy returns, for each fairness class, the number of rows that are kept for the class beside the class's pages, for
// example leases.
func (r *Rank) busy() []uint32 {
	all := r.rooms.Busy()
	for _, of := range r.flows.busiers {
		r.owner(of).(flow.Busier).Busy(all)
	}
	return all
}

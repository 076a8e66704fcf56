package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// onReceived passes a message to the room or the flow that serves its channel and, if several flows serve the channel,
// its tag. Each allocation request and each offer gets a reply, at once or when there is memory.
func (r *Rank) onReceived(e *flow.Env, x *effects.Received) {
	if x.Channel == effects.ChannelInit {
		r.onInit(e, x)
		return
	}
	server, ok := r.serverFor(x)
	switch {
	case !ok:
		reportUnserved(&e.Env, x)
	case x.Channel == effects.ChannelAlloc && x.Request == 0: // The sender expects no reply.
	default:
		server.HandleMessage(e, x)
	}
}

// onInit handles a message on the init channel: a handshake or a lease renewal.
func (r *Rank) onInit(e *flow.Env, x *effects.Received) {
	v := &e.Env
	switch role := r.cfg.Role; {
	case role.Sends() && x.Request != 0 &&
		protocol.HasTag(x.Body, protocol.TagRenewRequest, &r.cfg.Wire) && r.onRenew(e, x):
	case role.Receives():
		r.links.HandleInit(v, x, r.countBusyRows())
		if class := r.links.TakeReplaced(); class != 0 { // The class belongs to another peer from now on.
			for _, owner := range r.flows.classKeepers {
				r.flowOf(owner).(flow.ClassKeeper).OnClassReassigned(e, class)
			}
			r.sharedRooms.Landings.OnClassReassigned(class)
			r.sharedRooms.Outcomes.OnClassReassigned(class)
		}
	case x.Request != 0:
		r.links.RefuseInit(v, x)
	default:
		reportUnserved(v, x)
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
	if !m.DecodeRequest(v, &r.cfg.Wire, x) {
		return false
	}
	if needed := r.links.RenewerRoles(); x.LacksRole(needed) {
		v.Out.Mark(link.Marks.RoleForbidden)
		e.ReportForbidden(x, effects.StageOffer, link.MissingRoleReason(x, needed))
		m.RefuseAll()
	}
	for i, id := range m.FinishedGrants() {
		if i > 0 && !e.Work.HasBudget() {
			e.Out.Mark(flow.Marks.WordsCut)
			break
		}
		e.Work.SpendLook()
		if ref, ok := r.findLease(v, id); ok {
			m.ConfirmHolder()
			r.signalRow(e, ref.Owner, ref.Subject, flow.Signal{Kind: flow.LeaseEnded})
		}
		m.AddEnded(id)
	}
	for _, id := range m.WantedGrants() {
		state, ttl := lease.LeaseOver, effects.Duration(0)
		if ref, ok := r.findLease(v, id); ok {
			state, ttl = r.flowOf(ref.Owner).(flow.Lender).ExtendLease(e, ref)
		}
		m.AddExtended(v, id, state, ttl)
	}
	m.SendReply(v, x.Request)
	return true
}

// findLease returns the owner of the lease with this id. findLease reports false unless the lease is in force and was
// given to the reader that sent the renewal (M2).
func (r *Rank) findLease(v *env.Env, id uint64) (kernel.Ref, bool) {
	ref := v.Pools.OwnerOf(effects.GrantID(id))
	if ref.Owner == kernel.OwnerNone {
		return ref, false
	}
	lender, isLender := r.flowOf(ref.Owner).(flow.Lender)
	return ref, isLender && r.renewals.IsHolder(lender.LeaseOf(ref), id)
}

// reportUnserved reports a message on a channel that this rank does not serve.
func reportUnserved(v *env.Env, e *effects.Received) {
	v.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Unsupported, ID: uint64(e.Conn),
		Why: &effects.Why{Stage: effects.StageLink, Field: "channel", Theirs: e.Channel.String(), Ours: "not served"},
	})
}

// countBusyRows returns, for each fairness class, the number of rows that are kept for the class beside the class's
// pages, for example leases.
func (r *Rank) countBusyRows() []uint32 {
	counts := r.sharedRooms.CountClassRows()
	for _, owner := range r.flows.rowCounters {
		r.flowOf(owner).(flow.ClassHolder).AddClassRows(counts)
	}
	return counts
}

package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
)

// OnTimer handles the deadlines of these rooms.
func (r *Receiver) OnTimer(v *env.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPipeline:
		r.Fetches.PipeDue(v, &r.Store, &r.Deferred, ref)
		r.pull.TellEnded(v, &r.Rooms)
	case kernel.OwnerPending:
		q := r.Pending.Due(v, ref.Subject)
		if q.Linking {
			r.refuseWaiting(v, ref.Subject, effects.Unreachable, &effects.Why{
				Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.Cfg.AllocTimeout.String() + " at the most",
				Theirs: "no connection to its pages yet",
			})
			return
		}
		r.refuseWaiting(v, ref.Subject, effects.NoMemory, flow.NoPages(v, int(q.Keys)))
	case kernel.OwnerGets:
		r.Gets.Due(v, &r.Store, ref.Subject)
	case kernel.OwnerDeferred:
		if !deferred.IsFetch(ref) {
			r.pull.OfferDue(v, &r.Rooms, ref.Subject)
			return
		}
		r.Fetches.Overdue(v, &r.Store, &r.Deferred, ref.Subject)
		r.pull.TellEnded(v, &r.Rooms)
	case kernel.OwnerNotices:
		r.pull.Notices.Due(v, ref.Subject)
	case kernel.OwnerLease:
		r.pull.Renewers.Due(v, int(ref.Subject))
		r.pull.Renew(v, &r.Rooms, int(ref.Subject))
	case kernel.OwnerPushTarget:
		r.Landings.Overdue(v, &r.Store, r.Landings.Due(v, ref.Subject.Slot()))
	case kernel.OwnerPullTarget:
		r.pull.StopReading(v, &r.Rooms, r.Landings.Due(v, ref.Subject.Slot()), effects.Expired)
	}
}

// takeBack ends a landing for a reason of ours.
func (r *Receiver) takeBack(v *env.Env, x *land.Landing, code effects.Code) {
	if x.Reads() {
		r.pull.StopReading(v, &r.Rooms, x, code)
		return
	}
	r.Landings.Revoke(v, x)
}

// Drain refuses new work, answers who waits, takes grants back and drops what no
// engine will come for.
func (r *Receiver) Drain(v *env.Env) {
	r.Draining = true
	for class := range r.Pending.Classes() {
		for h := r.Pending.First(class); h != 0; h = r.Pending.First(class) {
			r.refuseWaiting(v, h, effects.Draining, flow.WhyEnded(effects.Draining))
		}
	}
	r.Gets.Drain(v)
	r.Fetches.Drain(v, &r.Store, &r.Deferred)
	r.pull.TellEnded(v, &r.Rooms)
	for slot := range r.Deferred.Slots() {
		if h, _ := r.Deferred.At(slot); h != 0 {
			r.pull.Drop(v, &r.Rooms, h, effects.Draining)
		}
	}
	for slot := range r.Landings.Slots() {
		if x := r.Landings.Standing(slot); x != nil {
			r.takeBack(v, x, effects.Draining)
		}
	}
	r.Store.DropAll(v)
}

// Left counts what a drain still waits for.
func (r *Receiver) Left(v *env.Env) int {
	return r.Pending.Len() + r.Gets.Len() + v.Pools.Grants() + r.pull.Notices.Left() +
		r.Fetches.Left() + r.Deferred.Len()
}

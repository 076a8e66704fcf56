package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
)

// OnTimer handles the deadlines of these rooms.
func (r *Receiver) OnTimer(v *env.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPipeline:
		r.fetches.PipeDue(v, &r.Store, &r.deferred, ref)
		r.pull.tellEnded(v, &r.rooms)
	case kernel.OwnerPending:
		q := r.pending.Due(v, ref.Subject)
		if q.Linking {
			r.refuseWaiting(v, ref.Subject, effects.Unreachable, &effects.Why{
				Stage: effects.StagePlane, Field: "pd_alloc_fail_backoff_ttl", Ours: r.cfg.AllocTimeout.String() + " at the most",
				Theirs: "no connection to its pages yet",
			})
			return
		}
		r.refuseWaiting(v, ref.Subject, effects.NoMemory, noPages(v, int(q.Keys)))
	case kernel.OwnerGets:
		r.gets.Due(v, &r.Store, ref.Subject)
	case kernel.OwnerDeferred:
		if !deferred.IsFetch(ref) {
			r.pull.offerDue(v, &r.rooms, ref.Subject)
			return
		}
		r.fetches.Overdue(v, &r.Store, &r.deferred, ref.Subject)
		r.pull.tellEnded(v, &r.rooms)
	case kernel.OwnerNotices:
		r.pull.notices.Due(v, ref.Subject)
	case kernel.OwnerLease:
		r.pull.renewers.Due(v, int(ref.Subject))
		r.pull.renew(v, &r.rooms, int(ref.Subject))
	case kernel.OwnerPushTarget:
		r.landings.Overdue(v, &r.Store, r.landings.Due(v, ref.Subject.Slot()))
	case kernel.OwnerPullTarget:
		r.pull.stopReading(v, &r.rooms, r.landings.Due(v, ref.Subject.Slot()), effects.Expired)
	}
}

// takeBack ends a landing for a reason of ours.
func (r *Receiver) takeBack(v *env.Env, x *land.Landing, code effects.Code) {
	if x.Reads() {
		r.pull.stopReading(v, &r.rooms, x, code)
		return
	}
	r.landings.Revoke(v, x)
}

// Drain refuses new work, answers who waits, takes grants back and drops what no
// engine will come for.
func (r *Receiver) Drain(v *env.Env) {
	r.draining = true
	for class := range r.pending.Classes() {
		for h := r.pending.First(class); h != 0; h = r.pending.First(class) {
			r.refuseWaiting(v, h, effects.Draining, ended(effects.Draining))
		}
	}
	r.gets.Drain(v)
	r.fetches.Drain(v, &r.Store, &r.deferred)
	r.pull.tellEnded(v, &r.rooms)
	for slot := range r.deferred.Slots() {
		if h, _ := r.deferred.At(slot); h != 0 {
			r.pull.drop(v, &r.rooms, h, effects.Draining)
		}
	}
	for slot := range r.landings.Slots() {
		if x := r.landings.Standing(slot); x != nil {
			r.takeBack(v, x, effects.Draining)
		}
	}
	r.Store.DropAll(v)
}

// Left counts what a drain still waits for.
func (r *Receiver) Left(v *env.Env) int {
	return r.pending.Len() + r.gets.Len() + v.Pools.Grants() + r.pull.notices.Left() +
		r.fetches.Left() + r.deferred.Len()
}

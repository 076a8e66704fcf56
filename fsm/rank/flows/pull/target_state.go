package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
)

// A TargetState is the state of a read, a notice, a renewal or a kept offer, for tools that count which cases
// were covered. No decision depends on it.
type TargetState uint16

// The states of a read, of a done message, of a renewal, and of what is kept for later.
const (
	Reading TargetState = iota
	ReadStopped
	ReadUnsettled
	DoneOpening
	DoneSending
	RenewOpening
	RenewRequesting
	OfferKept
	FetchWaiting
)

// TargetStateNames returns the names of the states, in order.
func TargetStateNames() []string {
	return []string{"reading", "read stopped", "read unsettled", "done opening", "done sending",
		"renewal opening", "renewal requesting", "offer kept", "fetch waiting"}
}

// RowState returns the state of what ref names.
func (t *Target) RowState(r *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Owner == kernel.OwnerPipeline {
		return uint16(r.Fetches.Pipeline().SituationFor(ref))
	}
	return uint16(t.targetState(r, ref))
}

func (t *Target) targetState(r *flow.Rooms, ref kernel.Ref) TargetState {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerNotices:
		if notice.IsDelivery(ref) {
			return DoneSending
		}
		return DoneOpening
	case kernel.OwnerLease:
		if lease.IsOpening(ref) {
			return RenewOpening
		}
		return RenewRequesting
	case kernel.OwnerDeferred:
		if deferred.IsFetch(ref) {
			return FetchWaiting
		}
		return OfferKept
	}
	x := r.Landings.At(ref.Subject.Slot())
	switch {
	case x.Revoking:
		return ReadUnsettled
	case t.readOf(x).stopCode != effects.OK:
		return ReadStopped
	}
	return Reading
}

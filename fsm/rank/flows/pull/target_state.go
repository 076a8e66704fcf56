package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
)

// A TargetState is where something of a target stands, for those who count what was tried. It decides nothing.
type TargetState uint16

// The states: of a read, of a notice, of a renewal, of what is kept for later.
const (
	Reading TargetState = iota
	ReadStopped
	ReadUnsettled
	DoneOpening
	DoneTelling
	RenewOpening
	RenewAsking
	OfferKept
	FetchWaiting
)

// TargetStateNames are their names, in their order.
func TargetStateNames() []string {
	return []string{"reading", "read stopped", "read unsettled", "done opening", "done telling",
		"renewal opening", "renewal asking", "offer kept", "fetch waiting"}
}

// State is that of what a Ref is of.
func (t *Target) State(r *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Owner == kernel.OwnerPipeline {
		return uint16(r.Fetches.Pipeline().SituationFor(ref))
	}
	return uint16(t.state(r, ref))
}

func (t *Target) state(r *flow.Rooms, ref kernel.Ref) TargetState {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerNotices:
		if notice.IsTelling(ref) {
			return DoneTelling
		}
		return DoneOpening
	case kernel.OwnerLease:
		if lease.IsOpening(ref) {
			return RenewOpening
		}
		return RenewAsking
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
	case t.readingOf(x).stop != effects.OK:
		return ReadStopped
	}
	return Reading
}

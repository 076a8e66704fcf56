package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/notice"
	"github.com/kvferry/kvferry/fsm/pipeline"
)

// A Situation is what something in this room is in, for those who count what was
// tried. It decides nothing.
type Situation uint8

// Situations.
const (
	Gone Situation = iota // what was meant is no more, or never was
	GetWaiting
	GetPinned
	AskWaiting
	GrantOpen
	GrantQuarantined
	Claimed
	Reading
	ReadStopped
	ReadUnsettled
	PostOpening
	PostTelling
	RenewOpening
	RenewAsking
	OfferKept
	FetchWaiting
	Situations
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	return []string{"gone", "get waiting", "get pinned", "ask waiting", "grant open", "grant quarantined", "claimed",
		"reading", "read stopped", "read unsettled", "done opening", "done telling",
		"renewal opening", "renewal asking", "offer kept", "fetch waiting"}
}

// Counts are of what is in the tables; to look at only.
type Counts struct {
	Gets    int // that wait or hold pins
	Waiters int // requests that wait for pages
	Offers  int // that are kept for later
	Fetches int // that wait or run
	// Operations of live grants and of waiting requests, by which retries are known.
	Operations, Retries int
	Staged, StagedMost  int // staging pages in use, and the most at a time so far
}

// Counts returns the counts of now.
func (r *Receiver) Counts() Counts {
	p := r.Fetches.Pipeline()
	return Counts{
		Gets: r.Gets.Len(), Waiters: r.Pending.Len(), Offers: r.Deferred.Len(), Fetches: r.Fetches.Len(),
		Operations: r.Landings.Operations(), Retries: r.Pending.Operations(),
		Staged: int(p.Staged()), StagedMost: int(p.StagedMost()),
	}
}

// Pipe is what stages fetches; to look at only.
func (r *Receiver) Pipe() *pipeline.Pipeline { return r.Fetches.Pipeline() }

// SituationOf is that of the Get or Fetch that a ticket stands for.
func (r *Receiver) SituationOf(ref kernel.Ref) Situation {
	if ref.Owner == kernel.OwnerDeferred {
		return FetchWaiting
	}
	if ref.Owner != kernel.OwnerGets {
		return Gone
	}
	switch waits, open := r.Gets.State(ref.Subject); {
	case waits:
		return GetWaiting
	case open:
		return GetPinned
	}
	return Gone
}

// SituationGrant is that of a grant.
func SituationGrant(pools *memory.Pools, id effects.GrantID) Situation {
	open, quarantined := pools.GrantIs(id)
	switch {
	case quarantined:
		return GrantQuarantined
	case open:
		return GrantOpen
	}
	return Gone
}

// SituationFor is that of what a completion is for.
func (r *Receiver) SituationFor(ref kernel.Ref) Situation {
	switch {
	case ref.Owner == kernel.OwnerNotices && notice.IsOpen(ref):
		return PostOpening
	case ref.Owner == kernel.OwnerNotices:
		return PostTelling
	case ref.Owner == kernel.OwnerLease && lease.IsOpening(ref):
		return RenewOpening
	case ref.Owner == kernel.OwnerLease:
		return RenewAsking
	}
	x := r.Landings.At(ref.Subject.Slot())
	switch {
	case x.Revoking:
		return ReadUnsettled
	case r.pull.ReadingOf(x).Stop != effects.OK:
		return ReadStopped
	}
	return Reading
}

// SituationDue is that of what a deadline is for.
func (r *Receiver) SituationDue(ref kernel.Ref) Situation {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPending:
		return AskWaiting
	case kernel.OwnerGets:
		return GetWaiting
	case kernel.OwnerDeferred:
		if deferred.IsFetch(ref) {
			return FetchWaiting
		}
		return OfferKept
	case kernel.OwnerStore:
		return Claimed
	case kernel.OwnerNotices:
		return PostOpening
	case kernel.OwnerLease:
		return RenewAsking
	case kernel.OwnerPushTarget:
		return GrantOpen
	case kernel.OwnerPullTarget:
		return Reading
	}
	return Gone
}

// Shares adds up what classes are counted to have of the tables that are shared out, and what is in these tables, each
// in the same order; to look at only.
func (r *Receiver) Shares() (counted, there [Shared]int) {
	counted[SharedAsks], there[SharedAsks] = r.Pending.Counted(), r.Pending.Len()
	counted[SharedWords], there[SharedWords], counted[SharedHosts], there[SharedHosts] = r.pull.Notices.Shares()
	there[SharedOffers], there[SharedPlaces] = r.Deferred.Len(), r.Store.Places()
	there[SharedBusy] = r.Pending.Len() + r.Deferred.Len()
	counted[SharedClaims], there[SharedClaims] = r.Store.Beyond()
	for class, busy := range r.Busy() {
		counted[SharedBusy] += int(busy)
		offers, places := r.Deferred.CountOf(class)
		counted[SharedOffers] += offers
		counted[SharedPlaces] += places
	}
	return counted, there
}

// What is shared out between classes.
const (
	SharedAsks = iota
	SharedWords
	SharedHosts // where to tell ends of offers
	SharedOffers
	SharedPlaces
	SharedBusy // what keeps a guest's class
	SharedClaims
	Shared
)

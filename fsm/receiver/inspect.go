package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/corrs"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/timers"
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

// SituationOf is that of the Get that a command means.
func (r *Receiver) SituationOf(t effects.Ticket) Situation {
	if r.findFetch(t) != 0 {
		return FetchWaiting
	}
	g := r.gets.Get(r.findGet(t))
	switch {
	case g == nil:
		return Gone
	case g.waiting:
		return GetWaiting
	}
	return GetPinned
}

// SituationGrant is that of a grant in pool.
func SituationGrant(pool *memory.Pool, id effects.GrantID) Situation {
	open, quarantined := pool.GrantIs(id)
	switch {
	case quarantined:
		return GrantQuarantined
	case open:
		return GrantOpen
	}
	return Gone
}

// SituationFor is that of what a completion is for.
func (r *Receiver) SituationFor(ref corrs.Ref) Situation {
	switch ref.Kind {
	case kindOpenPost:
		return PostOpening
	case kindPost:
		return PostTelling
	case kindOpenRenew:
		return RenewOpening
	case kindRenew:
		return RenewAsking
	}
	switch b := &r.batches[ref.Subject.Slot()]; {
	case b.revoking:
		return ReadUnsettled
	case b.pull.stop != effects.OK:
		return ReadStopped
	}
	return Reading
}

// SituationDue is that of what a deadline is for.
func (r *Receiver) SituationDue(ref timers.Ref) Situation {
	switch ref.Kind {
	case timerAsk:
		return AskWaiting
	case timerGrant:
		if r.batches[ref.Subject.Slot()].reading {
			return Reading
		}
		return GrantOpen
	case timerGet:
		return GetWaiting
	case timerOffer:
		return OfferKept
	case timerFetch:
		return FetchWaiting
	case timerRenew:
		return RenewAsking
	}
	if ref.Kind == timerPost {
		return PostOpening
	}
	return Claimed
}

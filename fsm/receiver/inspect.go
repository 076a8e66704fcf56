package receiver

import (
	"github.com/kvferry/kvferry/effects"
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
	Situations
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	return []string{"gone", "get waiting", "get pinned", "ask waiting", "grant open", "grant quarantined", "claimed"}
}

// SituationOf is that of the Get that a command means.
func (r *Receiver) SituationOf(t effects.Ticket) Situation {
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

// SituationDue is that of what a deadline is for.
func (r *Receiver) SituationDue(ref timers.Ref) Situation {
	switch ref.Kind {
	case timerAsk:
		return AskWaiting
	case timerGrant:
		return GrantOpen
	case timerGet:
		return GetWaiting
	}
	return Claimed
}

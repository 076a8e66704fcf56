package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is the state of the row that an event is about: of the put whose transfer ended, of the link whose
// connection broke, or of the grant that landed. The simulator counts situations by event to measure what was tried.
// Nothing else may depend on them.
type Situation uint8

// Situations of events that are about no row.
const (
	Running  Situation = iota // the rank is running
	Draining                  // the rank is draining
)

// situationOf contains the first situation of each owner.
//
//kvferry:table
var situationOf = func() (first [kernel.OwnerCount]Situation) {
	n := 0
	for _, set := range stateSets {
		for _, of := range set.owners {
			first[of] = Situation(n)
		}
		n += len(set.states)
	}
	return first
}()

// States of the rows that wait in the rooms of targets and belong to no flow.
const (
	waitsNoRow = iota // the row no longer exists, or never did
	waitsGet
	waitsPinned
	waitsRequest
	waitsClaimed
	waitsBundle
)

// SituationNames returns the names of the situations, in their order.
func SituationNames() (names []string) {
	for _, set := range stateSets {
		for _, state := range set.states {
			names = append(names, set.side+state)
		}
	}
	return names
}

// SituationOf returns the situation that ev is about. SituationOf must be called before the step that takes ev at the
// time now.
func (r *Rank) SituationOf(now effects.Time, ev effects.Event) Situation {
	switch e := ev.(type) {
	case *effects.Tick:
		return r.timerSituation(now)
	case *effects.Command:
		return r.commandSituation(e.Body)
	case *effects.ConnLost:
		if ref := r.conns.Find(e.Conn); ref.Owner != kernel.OwnerNone {
			return r.rowSituation(ref)
		}
		return r.linkSituation(0)
	case *effects.LinkLost:
		return r.linkSituation(r.links.ByLink(e.Link))
	case *effects.Landed:
		return r.grantSituation(e.Grant)
	case *effects.Revoked:
		if ref := r.pools.OwnerOf(e.Grant); ref.Subject != 0 { // a lease; landings go by the grant itself
			return r.rowSituation(ref)
		}
		return r.grantSituation(e.Grant)
	case effects.Completion:
		c, _ := e.CompletedEffect()
		return r.corrSituation(c)
	case *effects.Received, *effects.Dropped:
	}
	return r.ownSituation()
}

func (r *Rank) ownSituation() Situation {
	if r.drain.ticket != 0 {
		return Draining
	}
	return Running
}

// linkSituation returns the situation of the link to a peer, or that there is no link.
func (r *Rank) linkSituation(h table.Handle) Situation {
	return r.rowSituation(kernel.Ref{Owner: kernel.OwnerLink, Subject: h})
}

// grantSituation returns the situation of a write grant, which a peer holds, or which the rank itself holds to read
// into its own pages.
func (r *Rank) grantSituation(id effects.GrantID) Situation {
	open, quarantined := r.pools.GrantState(id)
	switch {
	case quarantined:
		return situationOf[kernel.OwnerPushTarget] + Situation(push.GrantQuarantined)
	case open:
		return situationOf[kernel.OwnerPushTarget] + Situation(push.GrantOpen)
	}
	return situationOf[kernel.OwnerGets] + waitsNoRow
}

func (r *Rank) corrSituation(c effects.Corr) Situation {
	ref, ok := r.corrs.Peek(c)
	if !ok {
		return r.ownSituation()
	}
	return r.rowSituation(ref)
}

// timerSituation returns the situation of the row with the earliest deadline, if that deadline has passed.
func (r *Rank) timerSituation(now effects.Time) Situation {
	ref, ok := r.timers.Peek(now)
	if !ok {
		return r.ownSituation()
	}
	return r.rowSituation(ref)
}

func (r *Rank) commandSituation(body effects.CommandBody) Situation {
	switch c := body.(type) {
	case *engine.Abort:
		if fetch := r.sharedRooms.Fetches.Pipeline().SituationOf(c.Target); fetch != staging.NoFetch {
			return situationOf[kernel.OwnerPipeline] + Situation(fetch)
		}
		return r.rowSituation(r.tickets.Find(c.Target))
	case *engine.Release:
		if ref := r.tickets.Find(c.Reserved); ref.Owner != kernel.OwnerGets && ref.Owner != kernel.OwnerDeferred {
			return r.rowSituation(ref)
		}
		return situationOf[kernel.OwnerPushSource] + Situation(put.NoRow)
	case *engine.Unpin:
		if ref := r.tickets.Find(c.Got); ref.Owner == kernel.OwnerGets {
			return r.rowSituation(ref)
		}
		return situationOf[kernel.OwnerGets] + waitsNoRow
	}
	return r.ownSituation()
}

// rowSituation returns the situation of the row that ref names.
func (r *Rank) rowSituation(ref kernel.Ref) Situation {
	if ref.Owner == kernel.OwnerNone {
		if !r.cfg.Role.Sends() {
			return situationOf[kernel.OwnerGets] + waitsNoRow
		}
		return situationOf[kernel.OwnerPushSource] + Situation(put.NoRow)
	}
	state := r.flowOf(ref.Owner).RowState(&r.sharedRooms, ref)
	if ref.Owner == kernel.OwnerEngine {
		if state == uint16(engine.NoRow) {
			return situationOf[kernel.OwnerPushSource] + Situation(put.NoRow)
		}
		state--
	}
	return situationOf[ref.Owner] + Situation(state)
}

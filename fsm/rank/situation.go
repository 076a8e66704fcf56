package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is the state of what an event is about: of the put whose transfer ended,
// of the link whose connection broke, of the grant that landed. Those who want to know
// what was tried count situations by event; nothing else may depend on them.
type Situation uint8

// Situations, by whose the states are.
const (
	Running  Situation = iota // the event is about nothing that has a state
	Draining                  // likewise, of a rank that drains

	situationLink     = Situation(2)
	linkStates        = Situation(link.Backoff) + 1
	situationPut      = situationLink + linkStates + 1           // the last of links: none
	situationEngine   = situationPut + Situation(put.States) - 1 // what is gone of it is of a put
	situationWaits    = situationEngine + Situation(engine.States)
	situationGrant    = situationWaits + Situation(waitsStates)
	situationRead     = situationGrant + Situation(push.TargetStates)
	situationFetch    = situationRead + Situation(pull.TargetStates)
	situationRecall   = situationFetch + Situation(staging.Situations)
	situationLeased   = situationRecall + Situation(recall.SourceStates)
	situationLent     = situationLeased + Situation(loan.States)
	situationBrought  = situationLent + Situation(p2p.OwnerStates)
	situationLayers   = situationBrought + Situation(p2p.RequesterStates)
	situationReceives = situationLayers + Situation(layerwise.States)
	situationWrites   = situationReceives + Situation(register.ConsumerStates)
	situationEnds     = situationWrites + Situation(register.ProducerStates)
	// Situations is how many there are.
	Situations = situationEnds + Situation(end.States)
)

// situationOf is where the states of each owner begin.
//
//kvferry:table
var situationOf = [kernel.Owners]Situation{
	kernel.OwnerRank: Draining, kernel.OwnerLink: situationLink, kernel.OwnerEngine: situationEngine,
	kernel.OwnerGets: situationWaits, kernel.OwnerStore: situationWaits, kernel.OwnerPending: situationWaits,
	kernel.OwnerPushSource: situationPut, kernel.OwnerPullSource: situationPut,
	kernel.OwnerPushTarget: situationGrant,
	kernel.OwnerPullTarget: situationRead, kernel.OwnerNotices: situationRead, kernel.OwnerLease: situationRead,
	kernel.OwnerDeferred: situationRead, kernel.OwnerPipeline: situationFetch,
	kernel.OwnerRecallSource: situationRecall, kernel.OwnerRecallTarget: situationLeased,
	kernel.OwnerP2POwner: situationLent, kernel.OwnerP2PRequester: situationBrought,
	kernel.OwnerP2PTarget: situationGrant,
	kernel.OwnerBundles:   situationWaits, kernel.OwnerLayers: situationLayers,
	kernel.OwnerConsumer: situationReceives, kernel.OwnerProducer: situationWrites,
	kernel.OwnerEndSource: situationEnds,
}

// What waits in the rooms of targets and is no flow's.
const (
	waitsGone = iota // what was meant is no more, or never was
	waitsGet
	waitsPinned
	waitsAsk
	waitsClaimed
	waitsBundle
	waitsStates
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	names := []string{"running", "draining", "link idle", "link opening", "link greeting", "link importing",
		"link listing", "link ready", "link backoff", "no link"}
	for _, of := range []struct {
		who    string
		states []string
	}{
		{"sender's ", put.StateNames()},
		{"sender's ", engine.StateNames()[1:]},
		{"receiver's ", []string{"gone", "get waiting", "get pinned", "pending request", "claimed", "bundle gathering"}},
		{"receiver's ", push.TargetStateNames()},
		{"receiver's ", pull.TargetStateNames()},
		{"pipeline's ", staging.SituationNames()},
		{"sender's ", recall.SourceStateNames()},
		{"receiver's ", recall.TargetStateNames()},
		{"owner's ", p2p.OwnerStateNames()},
		{"requester's ", p2p.RequesterStateNames()},
		{"sender's ", layerwise.StateNames()},
		{"consumer's ", register.ConsumerStateNames()},
		{"producer's ", register.ProducerStateNames()},
		{"sender's ", end.StateNames()},
	} {
		for _, state := range of.states {
			names = append(names, of.who+state)
		}
	}
	return names
}

// SituationOf says what ev is about, before the step that takes it at now.
func (r *Rank) SituationOf(now effects.Time, ev effects.Event) Situation {
	switch e := ev.(type) {
	case *effects.Tick:
		return r.dueNext(now)
	case *effects.Command:
		return r.target(e.Body)
	case *effects.Opened:
		return r.stateOf(e.Corr)
	case *effects.Replied:
		return r.stateOf(e.Corr)
	case *effects.Unanswered:
		return r.stateOf(e.Corr)
	case *effects.SendDone:
		return r.stateOf(e.Corr)
	case *effects.Imported:
		return r.stateOf(e.Corr)
	case *effects.TransferDone:
		return r.stateOf(e.Corr)
	case *effects.CopyDone:
		return r.stateOf(e.Corr)
	case *effects.Settled:
		return r.stateOf(e.Corr)
	case *effects.Scattered:
		return r.stateOf(e.Corr)
	case *effects.ConnLost:
		if ref := r.conns.Find(e.Conn); ref.Owner != kernel.OwnerNone {
			return r.state(ref)
		}
		return r.link(0)
	case *effects.LinkLost:
		return r.link(r.links.ByLink(e.Link))
	case *effects.Landed:
		return r.grant(e.Grant)
	case *effects.Revoked:
		if ref := r.pools.Owner(e.Grant); ref.Subject != 0 { // Of a lease; landings go by the grant itself.
			return r.state(ref)
		}
		return r.grant(e.Grant)
	case *effects.Received, *effects.Dropped:
	}
	return r.itself()
}

func (r *Rank) itself() Situation {
	if r.drain.ticket != 0 {
		return Draining
	}
	return Running
}

// link is where the link to a peer stands, or that there is none.
func (r *Rank) link(h table.Handle) Situation {
	return r.state(kernel.Ref{Owner: kernel.OwnerLink, Subject: h})
}

// grant is where a grant to store or to read for ourselves stands.
func (r *Rank) grant(id effects.GrantID) Situation {
	open, quarantined := r.pools.GrantIs(id)
	switch {
	case quarantined:
		return situationGrant + Situation(push.GrantQuarantined)
	case open:
		return situationGrant + Situation(push.GrantOpen)
	}
	return situationWaits + waitsGone
}

func (r *Rank) stateOf(c effects.Corr) Situation {
	ref, ok := r.corrs.Peek(c)
	if !ok {
		return r.itself()
	}
	return r.state(ref)
}

// dueNext is the situation of the earliest deadline, if its time has come.
func (r *Rank) dueNext(now effects.Time) Situation {
	ref, ok := r.timers.Peek(now)
	if !ok {
		return r.itself()
	}
	return r.state(ref)
}

func (r *Rank) target(body effects.CommandBody) Situation {
	switch c := body.(type) {
	case *engine.Abort:
		if is := r.rooms.Fetches.Pipeline().SituationOf(c.Target); is != staging.Gone {
			return situationFetch + Situation(is)
		}
		return r.state(r.tickets.Find(c.Target))
	case *engine.Release:
		if ref := r.tickets.Find(c.Reserved); ref.Owner != kernel.OwnerGets && ref.Owner != kernel.OwnerDeferred {
			return r.state(ref)
		}
		return situationPut + Situation(put.Gone)
	case *engine.Unpin:
		if ref := r.tickets.Find(c.Got); ref.Owner == kernel.OwnerGets {
			return r.state(ref)
		}
		return situationWaits + waitsGone
	}
	return r.itself()
}

// state is where something stands, by whose it is.
func (r *Rank) state(ref kernel.Ref) Situation {
	if ref.Owner == kernel.OwnerNone {
		if !r.cfg.Role.Sends() {
			return situationWaits + waitsGone
		}
		return situationPut + Situation(put.Gone)
	}
	is := r.owner(ref.Owner).State(&r.rooms, ref)
	if ref.Owner == kernel.OwnerEngine && is == uint16(engine.Gone) {
		return situationPut + Situation(put.Gone)
	}
	return situationOf[ref.Owner] + Situation(is)
}

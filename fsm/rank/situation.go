package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pd/put"
	"github.com/kvferry/kvferry/fsm/pd/recall"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is the state of what an event is about: of the put whose transfer ended,
// of the link whose connection broke, of the grant that landed. Those who want to know
// what was tried count situations by event; nothing else may depend on them.
type Situation uint8

// Situations, by room.
const (
	Running  Situation = iota // the event is about nothing that has a state
	Draining                  // likewise, of a rank that drains

	situationLink     = Situation(2)
	linkStates        = Situation(link.Backoff) + 1
	situationSender   = situationLink + linkStates + 1              // the last of links: none
	situationEngine   = situationSender + Situation(put.States) - 1 // what is gone of it is of a put
	situationReceiver = situationEngine + Situation(engine.States)
	situationFetch    = situationReceiver + Situation(receiver.Situations)
	situationRecall   = situationFetch + Situation(pipeline.Situations)
	situationLeased   = situationRecall + Situation(recall.SourceStates)
	// Situations is how many there are.
	Situations = situationLeased + Situation(recall.TargetStates)
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	names := []string{"running", "draining", "link idle", "link opening", "link greeting", "link importing", "link listing", "link ready", "link backoff", "no link"}
	for _, name := range append(put.StateNames(), engine.StateNames()[1:]...) {
		names = append(names, "sender's "+name)
	}
	for _, name := range receiver.SituationNames() {
		names = append(names, "receiver's "+name)
	}
	for _, name := range pipeline.SituationNames() {
		names = append(names, "pipeline's "+name)
	}
	for _, name := range recall.SourceStateNames() {
		names = append(names, "sender's "+name)
	}
	for _, name := range recall.TargetStateNames() {
		names = append(names, "receiver's "+name)
	}
	return names
}

// SituationOf says what ev is about, before the step that takes it at now.
func (r *Rank) SituationOf(now effects.Time, ev effects.Event) Situation {
	switch e := ev.(type) {
	case *effects.Tick:
		return r.due(now)
	case *effects.Command:
		return r.target(e.Body)
	case *effects.Opened:
		return r.completed(e.Corr)
	case *effects.Replied:
		return r.completed(e.Corr)
	case *effects.Unanswered:
		return r.completed(e.Corr)
	case *effects.SendDone:
		return r.completed(e.Corr)
	case *effects.Imported:
		return r.completed(e.Corr)
	case *effects.TransferDone:
		return r.completed(e.Corr)
	case *effects.CopyDone:
		return r.completed(e.Corr)
	case *effects.Settled:
		return r.completed(e.Corr)
	case *effects.Scattered:
		return r.completed(e.Corr)
	case *effects.ConnLost:
		switch ref := r.conns.Find(e.Conn); {
		case ref.Owner == kernel.OwnerLink:
			return situation(ref.Subject, &r.links)
		case recalled(ref):
			return r.recallSituation(ref)
		}
		return situation(0, &r.links)
	case *effects.LinkLost:
		return situation(r.links.ByLink(e.Link), &r.links)
	case *effects.Landed:
		return situationReceiver + Situation(receiver.SituationGrant(&r.pools, e.Grant))
	case *effects.Revoked:
		if ref := r.pools.Owner(e.Grant); ref.Owner == kernel.OwnerPullSource || recalled(ref) {
			return r.sends(ref)
		}
		return situationReceiver + Situation(receiver.SituationGrant(&r.pools, e.Grant))
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

func situation(h table.Handle, l *link.Links) Situation {
	if h == 0 {
		return situationLink + linkStates
	}
	state, _ := l.Outbound(h).State()
	return situationLink + Situation(state)
}

func (r *Rank) completed(c effects.Corr) Situation {
	ref, ok := r.corrs.Peek(c)
	switch {
	case !ok:
		return r.itself()
	case ref.Owner == kernel.OwnerLink && r.links.Outbound(ref.Subject) == nil:
		return situation(0, &r.links)
	case ref.Owner == kernel.OwnerLink:
		return situation(ref.Subject, &r.links)
	}
	if ref.Owner == kernel.OwnerPipeline {
		return situationFetch + Situation(r.receiver.Pipe().SituationFor(ref))
	}
	if ref.Owner == kernel.OwnerPullTarget || ref.Owner == kernel.OwnerNotices || ref.Owner == kernel.OwnerLease {
		return situationReceiver + Situation(r.receiver.SituationFor(ref))
	}
	return r.sends(ref)
}

// due is the situation of the earliest deadline, if its time has come.
func (r *Rank) due(now effects.Time) Situation {
	ref, ok := r.timers.Peek(now)
	if !ok {
		return r.itself()
	}
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerLink:
		return situation(ref.Subject, &r.links)
	case kernel.OwnerEngine, kernel.OwnerPushSource, kernel.OwnerPullSource, kernel.OwnerRecallSource,
		kernel.OwnerRecallTarget:
		return r.sends(ref)
	case kernel.OwnerDeferred, kernel.OwnerStore, kernel.OwnerPending, kernel.OwnerPushTarget, kernel.OwnerPullTarget,
		kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerGets:
		return situationReceiver + Situation(r.receiver.SituationDue(ref))
	case kernel.OwnerPipeline:
		return situationFetch + Situation(r.receiver.Pipe().SituationDue(ref))
	}
	return Draining
}

func (r *Rank) target(body effects.CommandBody) Situation {
	switch c := body.(type) {
	case *engine.Abort:
		if is := r.receiver.Pipe().SituationOf(c.Target); is != pipeline.Gone {
			return situationFetch + Situation(is)
		}
		ref := r.tickets.Find(c.Target)
		if ref.Owner == kernel.OwnerGets || ref.Owner == kernel.OwnerDeferred || !r.cfg.Role.Sends() {
			return situationReceiver + Situation(r.receiver.SituationOf(ref))
		}
		return r.sends(ref)
	case *engine.Release:
		return r.sends(r.tickets.Find(c.Reserved))
	case *engine.Unpin:
		return situationReceiver + Situation(r.receiver.SituationOf(r.tickets.Find(c.Got)))
	}
	return r.itself()
}

// sends is the situation of what a Ref of the sending side is for; gone if it is of none.
func (r *Rank) sends(ref kernel.Ref) Situation {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerEngine:
		if is := r.commands.State(ref); is != engine.Gone {
			return situationEngine + Situation(is)
		}
	case kernel.OwnerPushSource:
		return situationSender + Situation(r.pushSource.State(ref))
	case kernel.OwnerPullSource:
		return situationSender + Situation(r.pullSource.State(ref))
	case kernel.OwnerRecallSource, kernel.OwnerRecallTarget:
		return r.recallSituation(ref)
	}
	return situationSender + Situation(put.Gone)
}

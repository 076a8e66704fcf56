package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// What a target is told, by whose it is: its own reads, or what it asked for through the rooms that nobody else has
// rows in: renewals, notices, offers kept for later, fetches.

// Step takes what became of what this flow asked for.
func (t *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Opened:
		if ref.Owner == kernel.OwnerLease {
			t.renewOpened(e, ref, ev)
			return
		}
		t.notices.Opened(&e.Env, ref.Subject, ev)
	case *effects.ConnLost:
		t.connLost(e, ref)
	case *effects.SendDone:
		t.notices.Sent(&e.Env, ref.Subject, ev.Code)
	case *effects.Replied:
		t.renewAnswered(e, ref, ev.Body)
	case *effects.Unanswered:
		t.renewUnanswered(e, ref)
	case *effects.TransferDone:
		if ref.Owner != kernel.OwnerPipeline {
			t.transferDone(e, ref, ev)
			return
		}
		e.Fetches.Fetched(&e.Env, &e.Store, &e.Deferred, e.Links, ref, ev)
		t.tellEnded(e)
	case *effects.Settled:
		if ref.Owner != kernel.OwnerPipeline {
			t.settled(e, ref)
			return
		}
		e.Fetches.Settled(&e.Env, &e.Store, &e.Deferred, ref)
		t.tellEnded(e)
	case *effects.Scattered:
		e.Fetches.Scattered(&e.Env, &e.Store, &e.Deferred, ref, ev)
		t.tellEnded(e)
	case *effects.Revoked:
		e.Landings.Revoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.Foreign("who reads")
	}
}

// Serves reports that the target takes offers.
func (t *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagPullReadyNotif, c == effects.ChannelAlloc
}

// Receive takes an offer.
func (t *Target) Receive(e *flow.Env, x *effects.Received) { t.onOffer(e, x) }

// Reached handles how an attempt to reach the pages of a peer ended.
func (t *Target) Reached(e *flow.Env, class int, code effects.Code) { t.reached(e, class, code) }

// Due handles a deadline of this flow, or of those rooms.
func (t *Target) Due(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPullTarget:
		t.stopReading(e, e.Landings.Due(&e.Env, ref.Subject.Slot()), effects.Expired)
	case kernel.OwnerPipeline:
		e.Fetches.PipeDue(&e.Env, &e.Store, &e.Deferred, ref)
		t.tellEnded(e)
	case kernel.OwnerDeferred:
		if !deferred.IsFetch(ref) {
			t.offerDue(e, ref.Subject)
			return
		}
		e.Fetches.Overdue(&e.Env, &e.Store, &e.Deferred, ref.Subject)
		t.tellEnded(e)
	case kernel.OwnerNotices:
		t.notices.Due(&e.Env, ref.Subject)
	case kernel.OwnerLease:
		t.renewers.Due(&e.Env, int(ref.Subject))
		t.renew(e, int(ref.Subject))
	default:
		kernel.Foreign("who reads")
	}
}

// Signal is told that an offer that waits waits in vain, or that a read is to end for a reason of ours.
func (t *Target) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.Refused:
		t.refuseWaiting(e, ref.Subject, s.Code, s.Why)
	case flow.Ended:
		t.stopReading(e, e.Landings.At(ref.Subject.Slot()), s.Code)
	case flow.Changed, flow.LeaseEnded:
		kernel.Foreign("who reads")
	}
}

// connLost handles the end of one of this flow's connections.
func (t *Target) connLost(e *flow.Env, ref kernel.Ref) {
	if ref.Owner == kernel.OwnerNotices {
		t.notices.Lost(&e.Env, ref.Subject)
	} else if class := int(ref.Subject); t.renewers.Lost(&e.Env, class) {
		t.renew(e, class)
	}
}

// LinkLost handles that the link to a class's pages is gone: what is fetched over it fails, and what its sender still
// has for us is looked for at once over another one.
//
// Class 0 is that of what we asked for: who asked gives that up.
func (t *Target) LinkLost(e *flow.Env, class int, lost effects.Link) {
	e.Fetches.LinkLost(&e.Env, &e.Store, &e.Deferred, lost)
	t.tellEnded(e)
	if class != 0 && e.Deferred.KeepsOf(class) {
		e.Links.Reach(&e.Env, class)
	}
}

// Left counts what a drain waits for beside what is in the rooms.
func (t *Target) Left(*flow.Env) int { return t.notices.Left() }

// ClassLeft forgets what was said to the peer that had a class, and where that was asked for more time.
func (t *Target) ClassLeft(e *flow.Env, class int) {
	t.tombstones.Left(class)
	t.renewers.Left(&e.Env, class)
}

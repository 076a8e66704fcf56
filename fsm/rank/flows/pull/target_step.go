package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// The Refs that a Target receives belong to its own reads, or to shared tables in which no other flow has rows:
// renewals, notices, deferred offers and fetches. The methods in this file dispatch by the owner of the Ref.

// Step handles the completions of the effects that this flow requested.
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

// Serves reports that the Target takes offers.
func (t *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagPullReadyNotif, c == effects.ChannelAlloc
}

// Receive takes an offer.
func (t *Target) Receive(e *flow.Env, x *effects.Received) { t.onOffer(e, x) }

// Reached handles the result of an attempt to reach the pages of a peer.
func (t *Target) Reached(e *flow.Env, class int, code effects.Code) { t.reached(e, class, code) }

// Due handles a deadline of this flow or of the tables that it uses alone.
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

// Signal handles that a waiting offer can no longer be served, or that this rank ends a read early.
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

// connLost handles the end of a connection of this flow.
func (t *Target) connLost(e *flow.Env, ref kernel.Ref) {
	if ref.Owner == kernel.OwnerNotices {
		t.notices.Lost(&e.Env, ref.Subject)
	} else if class := int(ref.Subject); t.renewers.Lost(&e.Env, class) {
		t.renew(e, class)
	}
}

// LinkLost handles the loss of the link to a class's pages: the fetches that read over it fail, and if offers of
// the class are kept, a new link is requested at once.
//
// Class 0 is the class of prefixes that this rank requested itself. The requester gives those up.
func (t *Target) LinkLost(e *flow.Env, class int, lost effects.Link) {
	e.Fetches.LinkLost(&e.Env, &e.Store, &e.Deferred, lost)
	t.tellEnded(e)
	if class != 0 && e.Deferred.KeepsOf(class) {
		e.Links.Reach(&e.Env, class)
	}
}

// Left returns the number of done messages that a drain waits for. The shared tables count the rest.
func (t *Target) Left(*flow.Env) int { return t.notices.Left() }

// ClassLeft removes the replay records of the peer that had a class, and the renewal state of that class.
func (t *Target) ClassLeft(e *flow.Env, class int) {
	t.tombstones.Left(class)
	t.renewers.Left(&e.Env, class)
}

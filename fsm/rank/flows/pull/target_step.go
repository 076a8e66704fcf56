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
			t.onRenewOpened(e, ref, ev)
			return
		}
		t.notices.OnOpened(&e.Env, ref.Subject, ev)
	case *effects.ConnLost:
		t.onConnLost(e, ref)
	case *effects.SendDone:
		t.notices.OnSendDone(&e.Env, ref.Subject, ev.Code)
	case *effects.Replied:
		t.onRenewReplied(e, ref, ev.Body)
	case *effects.Unanswered:
		t.onRenewUnanswered(e, ref)
	case *effects.TransferDone:
		if ref.Owner != kernel.OwnerPipeline {
			t.onTransferDone(e, ref, ev)
			return
		}
		e.Fetches.OnTransferDone(&e.Env, &e.Store, &e.Deferred, e.Links, ref, ev)
		t.queueEndedDones(e)
	case *effects.Settled:
		if ref.Owner != kernel.OwnerPipeline {
			t.onSettled(e, ref)
			return
		}
		e.Fetches.OnSettled(&e.Env, &e.Store, &e.Deferred, ref)
		t.queueEndedDones(e)
	case *effects.Scattered:
		e.Fetches.OnScattered(&e.Env, &e.Store, &e.Deferred, ref, ev)
		t.queueEndedDones(e)
	case *effects.Revoked:
		e.Landings.OnRevoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.PanicUnexpected("the pull target")
	}
}

// ServedTag reports that the Target takes offers.
func (t *Target) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagPullReadyNotif, c == effects.ChannelAlloc
}

// HandleMessage takes an offer.
func (t *Target) HandleMessage(e *flow.Env, x *effects.Received) { t.handleOffer(e, x) }

// OnReachOutcome handles the result of an attempt to reach the pages of a peer.
func (t *Target) OnReachOutcome(e *flow.Env, class int, code effects.Code) {
	t.onReachOutcome(e, class, code)
}

// OnTimer handles a deadline of this flow or of the tables that it uses alone.
func (t *Target) OnTimer(e *flow.Env, ref kernel.Ref) {
	//exhaustive:ignore
	switch ref.Owner {
	case kernel.OwnerPullTarget:
		t.cancelRead(e, e.Landings.OnTimer(&e.Env, ref.Subject.Slot()), effects.Expired)
	case kernel.OwnerPipeline:
		e.Fetches.OnPipelineTimer(&e.Env, &e.Store, &e.Deferred, ref)
		t.queueEndedDones(e)
	case kernel.OwnerDeferred:
		if !deferred.IsFetch(ref) {
			t.onOfferDeadline(e, ref.Subject)
			return
		}
		e.Fetches.OnWaitTimer(&e.Env, &e.Store, &e.Deferred, ref.Subject)
		t.queueEndedDones(e)
	case kernel.OwnerNotices:
		t.notices.OnTimer(&e.Env, ref.Subject)
	case kernel.OwnerLease:
		t.renewers.OnTimer(&e.Env, int(ref.Subject))
		t.renewLeases(e, int(ref.Subject))
	default:
		kernel.PanicUnexpected("the pull target")
	}
}

// OnSignal handles that a waiting offer can no longer be served, or that this rank ends a read early.
func (t *Target) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.RequestRefused:
		t.refuseWaiting(e, ref.Subject, s.Code, s.Why)
	case flow.LandingEnded:
		t.cancelRead(e, e.Landings.At(ref.Subject.Slot()), s.Code)
	case flow.PeerChanged, flow.LeaseEnded:
		kernel.PanicUnexpected("the pull target")
	}
}

// onConnLost handles the end of a connection of this flow.
func (t *Target) onConnLost(e *flow.Env, ref kernel.Ref) {
	if ref.Owner == kernel.OwnerNotices {
		t.notices.OnConnLost(&e.Env, ref.Subject)
	} else if class := int(ref.Subject); t.renewers.OnConnLost(&e.Env, class) {
		t.renewLeases(e, class)
	}
}

// LinkLost handles the loss of the link to a class's pages: the fetches that read over it fail, and if offers of
// the class are kept, a new link is requested at once.
//
// Class 0 is the class of prefixes that this rank requested itself. The requester gives those up.
func (t *Target) LinkLost(e *flow.Env, class int, lost effects.Link) {
	e.Fetches.OnLinkLost(&e.Env, &e.Store, &e.Deferred, lost)
	t.queueEndedDones(e)
	if class != 0 && e.Deferred.HasOffersOf(class) {
		e.Links.ReachPeer(&e.Env, class)
	}
}

// CountUnfinished returns the number of done messages that a drain waits for. The shared tables count the rest.
func (t *Target) CountUnfinished(*flow.Env) int { return t.notices.CountUnfinished() }

// OnClassReassigned removes the replay records of the peer that had a class, and the renewal state of that class.
func (t *Target) OnClassReassigned(e *flow.Env, class int) {
	t.tombstones.DropClass(class)
	t.renewers.OnClassReassigned(&e.Env, class)
}

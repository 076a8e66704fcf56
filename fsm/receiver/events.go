package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
)

// What drivers tell of what was asked of them: each completion is its room's.

// OnTransferDone handles the end of a read: of an offer as it came, or of a fetch.
func (r *Receiver) OnTransferDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	if ref.Owner != kernel.OwnerPipeline {
		r.pull.TransferDone(v, &r.Rooms, l, ref, ev)
		return
	}
	r.Fetches.Fetched(v, &r.Store, &r.Deferred, l, ref, ev)
	r.pull.TellEnded(v, &r.Rooms)
}

// OnSettled handles the late word that a read touches nothing any more.
func (r *Receiver) OnSettled(v *env.Env, ref kernel.Ref) {
	if ref.Owner != kernel.OwnerPipeline {
		r.pull.Settled(v, &r.Rooms, ref)
		return
	}
	r.Fetches.Settled(v, &r.Store, &r.Deferred, ref)
	r.pull.TellEnded(v, &r.Rooms)
}

// OnScattered handles the end of a scatter.
func (r *Receiver) OnScattered(v *env.Env, ref kernel.Ref, ev *effects.Scattered) {
	r.Fetches.Scattered(v, &r.Store, &r.Deferred, ref, ev)
	r.pull.TellEnded(v, &r.Rooms)
}

// OnRenewed handles the answer to a renewal.
func (r *Receiver) OnRenewed(v *env.Env, ref kernel.Ref, body []byte) {
	r.pull.RenewAnswered(v, &r.Rooms, ref, body)
}

// OnUnanswered handles a renewal that got no answer.
func (r *Receiver) OnUnanswered(v *env.Env, ref kernel.Ref) { r.pull.RenewUnanswered(v, &r.Rooms, ref) }

// OnReached handles that the link to the pages of a class is there, or that it cannot be had.
func (r *Receiver) OnReached(v *env.Env, class int, code effects.Code, why effects.Why) {
	r.pull.Reached(v, &r.Rooms, class, code, why)
}

// OnLinkLost handles the end of a data-plane link: what is read over it fails, and what its sender still has for
// us is looked for at once over another one.
func (r *Receiver) OnLinkLost(v *env.Env, l *link.Links, lost effects.Link) {
	class := l.OnReachLost(v, lost)
	if class == 0 {
		return
	}
	r.Fetches.LinkLost(v, &r.Store, &r.Deferred, lost)
	r.pull.TellEnded(v, &r.Rooms)
	if r.Deferred.KeepsOf(class) {
		l.Reach(v, class)
	}
}

// OnConnLost forgets who waits on a connection that is gone.
func (r *Receiver) OnConnLost(v *env.Env, conn effects.Conn) {
	if r.pull.Notices.Lost(v, conn) {
		return
	}
	if class := r.pull.Renewers.Lost(v, conn); class != 0 {
		r.pull.Renew(v, &r.Rooms, class)
		return
	}
	for slot := range r.Pending.Slots() {
		if h, q := r.Pending.At(slot); h != 0 && q.Conn == conn {
			v.Out.Mark(pending.MarkAskerLost)
			r.Pending.Remove(v, h)
		}
	}
}

// OnGuestLeft handles that a class is another peer's from now on.
func (r *Receiver) OnGuestLeft(class int) {
	r.pull.Tombstones.Left(class)
	r.Landings.Left(class)
}

// OnOpened handles the completion of an Open of this room.
func (r *Receiver) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	if ref.Owner == kernel.OwnerLease {
		r.pull.RenewOpened(v, &r.Rooms, ref, ev)
		return
	}
	r.pull.Notices.Opened(v, ref.Subject, ev)
}

// OnSendDone handles the completion of a notice.
func (r *Receiver) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	r.pull.Notices.Sent(v, ref.Subject, code)
}

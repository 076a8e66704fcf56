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
		r.pull.transferDone(v, &r.rooms, l, ref, ev)
		return
	}
	r.fetches.Fetched(v, &r.Store, &r.deferred, l, ref, ev)
	r.pull.tellEnded(v, &r.rooms)
}

// OnSettled handles the late word that a read touches nothing any more.
func (r *Receiver) OnSettled(v *env.Env, ref kernel.Ref) {
	if ref.Owner != kernel.OwnerPipeline {
		r.pull.settled(v, &r.rooms, ref)
		return
	}
	r.fetches.Settled(v, &r.Store, &r.deferred, ref)
	r.pull.tellEnded(v, &r.rooms)
}

// OnScattered handles the end of a scatter.
func (r *Receiver) OnScattered(v *env.Env, ref kernel.Ref, ev *effects.Scattered) {
	r.fetches.Scattered(v, &r.Store, &r.deferred, ref, ev)
	r.pull.tellEnded(v, &r.rooms)
}

// OnRenewed handles the answer to a renewal.
func (r *Receiver) OnRenewed(v *env.Env, ref kernel.Ref, body []byte) {
	r.pull.renewAnswered(v, &r.rooms, ref, body)
}

// OnUnanswered handles a renewal that got no answer.
func (r *Receiver) OnUnanswered(v *env.Env, ref kernel.Ref) { r.pull.renewUnanswered(v, &r.rooms, ref) }

// OnReached handles that the link to the pages of a class is there, or that it cannot be had.
func (r *Receiver) OnReached(v *env.Env, class int, code effects.Code, why effects.Why) {
	r.pull.reached(v, &r.rooms, class, code, why)
}

// OnLinkLost handles the end of a data-plane link: what is read over it fails, and what its sender still has for
// us is looked for at once over another one.
func (r *Receiver) OnLinkLost(v *env.Env, l *link.Links, lost effects.Link) {
	class := l.OnReachLost(v, lost)
	if class == 0 {
		return
	}
	r.fetches.LinkLost(v, &r.Store, &r.deferred, lost)
	r.pull.tellEnded(v, &r.rooms)
	if r.deferred.KeepsOf(class) {
		l.Reach(v, class)
	}
}

// OnConnLost forgets who waits on a connection that is gone.
func (r *Receiver) OnConnLost(v *env.Env, conn effects.Conn) {
	if r.pull.notices.Lost(v, conn) {
		return
	}
	if class := r.pull.renewers.Lost(v, conn); class != 0 {
		r.pull.renew(v, &r.rooms, class)
		return
	}
	for slot := range r.pending.Slots() {
		if h, q := r.pending.At(slot); h != 0 && q.Conn == conn {
			v.Out.Mark(pending.MarkAskerLost)
			r.pending.Remove(v, h)
		}
	}
}

// OnGuestLeft handles that a class is another peer's from now on.
func (r *Receiver) OnGuestLeft(class int) {
	r.pull.tombstones.Left(class)
	r.landings.Left(class)
}

// OnOpened handles the completion of an Open of this room.
func (r *Receiver) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	if ref.Owner == kernel.OwnerLease {
		r.pull.renewOpened(v, &r.rooms, ref, ev)
		return
	}
	r.pull.notices.Opened(v, ref.Subject, ev)
}

// OnSendDone handles the completion of a notice.
func (r *Receiver) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	r.pull.notices.Sent(v, ref.Subject, code)
}

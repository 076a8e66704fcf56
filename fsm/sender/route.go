package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
)

// What the rank tells this room of goes to the part that asked for it: the kind of a reference says which.

// OnReplied handles an answer on a lane.
func (s *Sender) OnReplied(v *env.Env, l *link.Links, ref kernel.Ref, body []byte) {
	e := step{*v, &s.shared, l}
	if ref.Kind == kindOffer || ref.Kind == kindWithdraw {
		s.pull.onReplied(&e, ref, body)
		return
	}
	s.push.onReplied(&e, ref, body)
}

// OnUnanswered handles a question of this room that got no answer.
func (s *Sender) OnUnanswered(v *env.Env, l *link.Links, ref kernel.Ref, code effects.Code) {
	e := step{*v, &s.shared, l}
	if ref.Kind == kindOffer || ref.Kind == kindWithdraw {
		s.pull.onUnanswered(&e, ref, code)
		return
	}
	s.push.onUnanswered(&e, ref, code)
}

// OnTransferDone handles the end of a transfer.
func (s *Sender) OnTransferDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	s.push.onTransferDone(&step{*v, &s.shared, l}, ref.Subject, ev)
}

// OnCopyDone handles the end of a copy.
func (s *Sender) OnCopyDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.CopyDone) {
	s.pull.onCopyDone(&step{*v, &s.shared, l}, ref, ev)
}

// OnSettled handles the late word that nothing touches the pages any more.
func (s *Sender) OnSettled(v *env.Env, l *link.Links, ref kernel.Ref) {
	e := step{*v, &s.shared, l}
	if ref.Kind == kindCopy {
		s.pull.onCopySettled(&e, ref)
		return
	}
	s.push.onSettled(&e, ref)
}

// OnDone handles a reader's word that it has read, or will not read, what was offered.
func (s *Sender) OnDone(v *env.Env, l *link.Links, ev *effects.Received) {
	s.pull.onDone(&step{*v, &s.shared, l}, ev)
}

// Lease is that of the put that a grant is for.
func (s *Sender) Lease(ref kernel.Ref) *lease.Owner { return &s.pull.puts.Get(ref.Subject).lease }

// OnRevoked handles the proof that nobody reads what ref leased any more. A lease that ended by its reader's word
// meanwhile has no owner.
func (s *Sender) OnRevoked(v *env.Env, l *link.Links, ref kernel.Ref) {
	s.pull.onRevoked(&step{*v, &s.shared, l}, ref)
}

// OnFinished handles a reader's word, beside a renewal, that it reads no more of what a lease of ours is for.
func (s *Sender) OnFinished(v *env.Env, l *link.Links, ref kernel.Ref) {
	s.pull.onFinished(&step{*v, &s.shared, l}, ref.Subject)
}

// Extend gives a lease more time, unless this end drains: it is to end.
func (s *Sender) Extend(v *env.Env, ref kernel.Ref) (lease.Extended, effects.Duration) {
	most := s.cfg.LoanMax
	if s.draining {
		most = 0
	}
	return s.Lease(ref).Extend(v, s.cfg.PullTTL, most, timerRef(timerLease, ref.Subject)), s.cfg.PullTTL
}

// OnProxyOpened handles the completion of the Open of the proxy's connection.
func (s *Sender) OnProxyOpened(v *env.Env, ev *effects.Opened) { s.proxy.onOpened(v, &s.requests, ev) }

// OnSendDone handles the completion of a notification.
func (s *Sender) OnSendDone(v *env.Env, ref kernel.Ref, code effects.Code) {
	s.proxy.onSendDone(v, &s.requests, ref.Subject, code)
}

// OnConnLost handles the loss of a connection that may be the proxy's.
func (s *Sender) OnConnLost(v *env.Env, conn effects.Conn) { s.proxy.onConnLost(v, &s.requests, conn) }

// OnTimer handles this room's deadlines.
func (s *Sender) OnTimer(v *env.Env, l *link.Links, ref kernel.Ref) {
	switch ref.Kind {
	case timerPush, timerPushAnswer:
		s.push.due(&step{*v, &s.shared, l}, ref)
	case timerPull, timerPullAnswer, timerLease:
		s.pull.due(&step{*v, &s.shared, l}, ref)
	case timerReserve:
		s.reserves.Due(v, &s.tickets, ref.Subject)
	case timerRequest:
		s.requests.Due(ref.Subject)
	case timerProxy:
		s.proxy.due(v, &s.requests)
	}
}

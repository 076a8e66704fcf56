package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// becomeMoving starts the one batched write.
func (s *Sender) becomeMoving(v *env.Env, l *link.Links, h table.Handle, p *put) {
	lease := s.cfg.Lease
	if s.reply.HasExt {
		lease = effects.Duration(min(s.reply.Ext.LeaseNS, 1<<62))
	}
	p.phase, p.conn = moving, 0
	p.transfer = v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kindTransfer, Subject: h})
	to, who := l.Of(p.peer).Link()
	p.link = to
	v.Out.Transfer(effects.Transfer{
		Corr: p.transfer, Link: to, Peer: who, Grant: p.grant, Pairs: s.pairs, Since: p.since,
		NotAfter: min(p.deadline, p.asked.Add(lease-s.cfg.LeaseGuard)),
	})
}

// OnTransferDone handles the end of a transfer. The outcome may be old already
// (deadline, abort): then only the memory comes back.
func (s *Sender) OnTransferDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	h := ref.Subject
	p := s.puts.Get(h)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		// The link is of no use any more, whether or not a LinkLost tells as well.
		if now, _ := l.Of(p.peer).Link(); now == p.link {
			l.Fail(v, p.peer, ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone"})
		}
	}
	if ev.Code != effects.OK {
		p.blame(ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: ev.Code.String()})
	}
	if !ev.Settled {
		v.Out.Mark(MarkUnsettled)
		p.phase = settling
		p.aborting = true
		if !p.delivered {
			s.deliverHeld(v, p, ev.Code, true)
		}
		return
	}
	if p.held {
		p.returnPages(v)
	}
	switch {
	case p.delivered:
		s.giveBack(v, l, h, p)
	case ev.Code != effects.OK:
		v.Out.Mark(MarkTransferFailed)
		s.fail(v, l, h, p, ev.Code)
	case s.cfg.Leased && p.commits:
		// The bytes are there, but the receiver cannot know before it is told.
		s.becomeCommitting(v, l, h, p)
	default:
		// Fenced planes: the receiver confirmed the landing.
		s.deliver(v, p, effects.OK)
		s.end(v, l, h, p)
	}
}

// OnSettled handles the late word that nothing touches the pages any more.
func (s *Sender) OnSettled(v *env.Env, l *link.Links, ref kernel.Ref) {
	if ref.Kind == kindCopy {
		s.onCopySettled(v, l, ref)
		return
	}
	p := s.puts.Get(ref.Subject)
	p.returnPages(v)
	s.giveBack(v, l, ref.Subject, p)
}

func (s *Sender) onCommitReply(v *env.Env, l *link.Links, h table.Handle, p *put, body []byte) {
	m := &s.reply
	code, why := effects.Malformed, effects.Why{Field: "AllocResponse", Theirs: "no answer to a commit"}
	if err := m.Decode(body, &s.cfg.Wire); err == nil && m.HasExt {
		code = effects.Withdrawn
		why = effects.Why{
			Field: "grant", Ours: "written, and committed", Theirs: "over before that", Said: effects.Words(m.Ext.Reason),
		}
		for _, id := range m.Ext.Committed {
			if effects.GrantID(id) == p.grant {
				code = effects.OK
			}
		}
	}
	if !p.delivered {
		if code != effects.OK {
			v.Out.Mark(MarkCommitGone)
			p.blame(code, why)
		}
		s.deliver(v, p, code)
	}
	s.end(v, l, h, p)
}

package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// OnRenew handles a reader's request for more time, which may also say that it has finished with other loans.
// The time counts here from now, and for the reader from before it asked: the reader's ends first (M4). A loan
// that ended is never revived, none lives longer than LoanMax in all, and who drains prolongs none.
func (s *Sender) OnRenew(v *env.Env, l *link.Links, ev *effects.Received) bool {
	m, out := &s.renewal, &s.renewed
	if err := m.Decode(ev.Body, &s.cfg.Wire); err != nil {
		return false
	}
	*out = protocol.RenewResponse{
		Version:  link.VersionMax,
		Extended: out.Extended[:0], Gone: out.Gone[:0], Done: out.Done[:0],
		Stamps: protocol.Stamps{ClockNS: int64(v.Now), EchoNS: m.Stamps.ClockNS},
	}
	for _, id := range m.Done {
		if h, p := s.lentTo(v, m, id); p != nil {
			out.Incarnation = m.To
			s.endLoan(v, h, p)
			s.answered(v, l, h, p)
		}
		out.Done = append(out.Done, id)
	}
	for _, id := range m.Grants {
		h, p := s.lentTo(v, m, id)
		switch {
		case p == nil || v.Now >= p.loan.until:
			v.Out.Mark(MarkRenewGone)
			out.Gone = append(out.Gone, id)
			continue
		case s.draining, v.Now.Add(s.cfg.PullTTL) > p.loan.began.Add(s.cfg.LoanMax):
			v.Out.Mark(MarkRenewCapped) // It stands as it did.
		default:
			out.Extended, out.LeaseNS = append(out.Extended, id), uint64(s.cfg.PullTTL)
			p.loan.until = v.Now.Add(s.cfg.PullTTL)
			v.Timers.Set(&p.expiry, p.loan.until, timerRef(timerLoan, h))
		}
		out.Incarnation = m.To // The asker proved that it knows us by this name.
	}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(out.Append(v.Out.Arena()))})
	return true
}

// lentTo is the put whose loan a reader speaks of, if it stands and is that reader's.
func (s *Sender) lentTo(v *env.Env, m *protocol.RenewRequest, id uint64) (table.Handle, *put) {
	ref := v.Pools.Owner(effects.GrantID(id))
	if ref.Owner != kernel.OwnerSender {
		return 0, nil
	}
	p := s.puts.Get(ref.Subject)
	if !p.loan.stands() || !identity.Same(m.Incarnation, p.who) || !identity.Same(m.To, p.us) {
		return 0, nil
	}
	return ref.Subject, p
}

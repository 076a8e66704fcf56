package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A hello may meet another kind of program: LMCache with its own transfer channels, or nothing that answers. Most of
// them have a REP socket there, and one that cannot read a hello answers nothing and serves nobody any more until it is
// restarted: a defect of theirs that we cannot mend, only not repeat. So who was found to be of another kind is asked
// again after UnfitBackoff only, and who never answered a hello after ever longer times up to that.

// otherKind says which two kinds met.
func (l *Links) otherKind(theirs string) effects.Why {
	return effects.Why{
		Field: "kind", Ours: "kvferry, transfer_channel " + listed(l.cfg.PlaneNames), Theirs: theirs,
		Remedy: "run kvferry at both ends, or lmcache at both",
	}
}

// strange gives up a peer that is of another kind.
func (l *Links) strange(v *env.Env, h table.Handle, theirs string) {
	v.Out.Mark(MarkOtherKind)
	l.peers.Get(h).alien = true
	l.Fail(v, h, effects.Unsupported, l.otherKind(theirs))
}

// refused ends a handshake whose answer was not the one that belongs there: another kind's, a word that the step
// failed, or nonsense.
func (l *Links) refused(v *env.Env, h table.Handle, body []byte, err error, otherwise effects.Code) {
	m := &l.readied
	if m.Decode(body, &l.cfg.Wire) == nil {
		v.Out.Mark(MarkRefusedByPeer)
		if m.Code != 0 {
			l.Fail(v, h, effects.CodeFromWire(m.Code), effects.Why{Said: effects.Words(m.Reason)})
			return
		}
		l.Fail(v, h, effects.Refused, effects.Why{
			Field: "HixlReadyResponse.ok", Theirs: "false", Remedy: "see its log: it is lmcache, or an older kvferry",
		})
		return
	}
	if theirs := protocol.Speaker(body, &l.cfg.Wire); theirs != "" {
		l.strange(v, h, theirs)
		return
	}
	l.Fail(v, h, otherwise, Undecodable(err))
}

// delay is how long a peer is left alone that has just failed.
func (l *Links) delay(p *Outbound) effects.Duration {
	switch {
	case p.alien:
		return l.jitter(l.cfg.UnfitBackoff)
	case p.silent > 0:
		d := l.cfg.BackoffMax
		for range min(p.silent-1, 30) {
			if d >= l.cfg.UnfitBackoff/2 {
				return l.jitter(l.cfg.UnfitBackoff)
			}
			d *= 2
		}
		return l.jitter(max(d, l.cfg.BackoffMax))
	}
	return l.backoff(p.fails)
}

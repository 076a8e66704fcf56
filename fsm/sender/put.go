package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// OnPut handles a Put. What is refused before a flow takes it leaves everything as it was; what is refused later has
// an outcome as any put has, of which the proxy hears.
func (s *Sender) OnPut(v *env.Env, l *link.Links, t effects.Ticket, c *Put) {
	if code, why := s.check(v, c); code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	if !s.parts.mayFollow(c, s.Puts(), int(s.cfg.PutsMax)) {
		v.Out.Mark(MarkPutsFull)
		engine.TurnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(s.cfg.PutsMax) + ", and " + number(s.Puts()) + " puts are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	req, code, why := s.requests.Join(v, c.Request, c.Last)
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	s.parts.follow(t, c)
	s.operation++
	a := admitted{ticket: t, request: req, operation: s.operation}
	s.meet(v, l, link.Where(c.Peer), &a)
	e := step{*v, &s.shared, l}
	if s.cfg.Pull {
		s.pull.take(&e, c, &a)
	} else {
		s.push.take(&e, c, &a)
	}
}

// meet gives a put its peer, or says why it has none.
func (s *Sender) meet(v *env.Env, l *link.Links, w link.Where, a *admitted) {
	if s.breakers.LeftAlone(v.Now, w) {
		v.Out.Mark(MarkPeerBackedOff)
		a.code, a.why = effects.BackedOff, s.breakers.Why(w)
		return
	}
	if a.peer = l.Want(v, w); a.peer == 0 {
		v.Out.Mark(MarkPeersFull)
		a.code, a.why = effects.TooMany, effects.Why{
			Stage: effects.StageConnect, Field: "tables.peers", Ours: number(s.cfg.PeersMax) + ", all in use,",
			Remedy: "raise tables.peers, or retry",
		}
	}
}

// OnAbort handles an Abort.
func (s *Sender) OnAbort(v *env.Env, l *link.Links, t effects.Ticket, c *Abort) {
	if !s.abort(&step{*v, &s.shared, l}, c.Target) {
		engine.TurnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: number(uint64(c.Target)), Ours: "the ticket of a command that has not ended",
		})
		return
	}
	engine.Agree(v, t)
}

func (s *Sender) abort(e *step, t effects.Ticket) bool {
	switch ref := s.tickets.Find(t); ref.Kind {
	case ticketReserve:
		if s.reserves.Waits(ref.Subject) {
			s.reserves.Fail(&e.Env, &s.tickets, ref.Subject, effects.Cancelled)
			return true
		}
	case ticketPush:
		return s.push.abort(e, ref.Subject)
	case ticketPull:
		return s.pull.abort(e, ref.Subject)
	}
	return false
}

func (s *Sender) check(v *env.Env, c *Put) (effects.Code, *effects.Why) {
	n := len(c.Keys)
	switch {
	case s.draining:
		return effects.Draining, &effects.Why{}
	case n == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case n != len(c.Pages):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: number(len(c.Pages)), Ours: "one for each of " + number(n) + " keys",
		}
	case c.Patience < 0:
		return effects.Invalid, &effects.Why{Field: "Patience", Theirs: c.Patience.String(), Ours: "0 or more"}
	case c.Peer.Host == "" || c.Peer.InitPort == 0 || c.Peer.AllocPort == 0:
		return effects.Invalid, &effects.Why{
			Field: "Peer", Theirs: where(c.Peer),
			Ours: "a host and two ports",
		}
	case n > s.Fits(c.Keys):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(n), Ours: "at most " + number(s.Fits(c.Keys)) + " of these",
		}
	case len(c.Request) > int(s.cfg.RequestIDMax):
		return effects.TooLarge, &effects.Why{
			Field: "Request", Theirs: number(len(c.Request)) + " bytes", Ours: "at most " + number(s.cfg.RequestIDMax),
		}
	case c.Last && len(c.Request) == 0:
		return effects.Invalid, &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request that Last is of"}
	}
	if c.Layout != s.cfg.Layout {
		why, _ := link.Differ(s.cfg.Layout, c.Layout)
		why.Field = "Layout" + why.Field[len("layout"):]
		return effects.Mismatch, &why
	}
	if c.LastChunkTokens == 0 || c.LastChunkTokens > c.Layout.Tokens() {
		return effects.Invalid, &effects.Why{
			Field: "LastChunkTokens", Theirs: number(c.LastChunkTokens), Ours: "1 to " + number(c.Layout.Tokens()),
		}
	}
	var check protocol.KeyCheck
	for i, key := range c.Keys {
		want := s.cfg.PageBytes
		if i == n-1 {
			want = s.tokenBytes * uint64(c.LastChunkTokens)
		}
		switch got := uint64(c.Pages[i].Length); {
		case got != want:
			return effects.Invalid, &effects.Why{Field: at("Pages", i), Theirs: number(got) + " bytes", Ours: number(want)}
		case !v.Filled().Lives(c.Pages[i]):
			return effects.Invalid, &effects.Why{
				Field: at("Pages", i), Theirs: "none of a Reserve that was not released", Ours: "one",
			}
		}
		if err := check.Check(key, s.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

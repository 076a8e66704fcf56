package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A conn is a connection that the rank opened to a rank of a plain engine.
type conn struct {
	id effects.Conn
	to *theirRank
}

// Open handles the rank's Open effect, and completes the effect at once, as any transport may do before the peer is
// present.
func (g *inward) Open(e *effects.Open, out *Out) {
	answer := &effects.Opened{Corr: e.Corr}
	out.Events = append(out.Events, answer)
	place, ok := PlaceOf(e.Addr)
	if !ok {
		answer.Code = effects.Invalid
		return
	}
	p := g.producer(place, out)
	if p == nil {
		answer.Code = effects.TooMany
		return
	}
	to := p.rank(place, g.cfg.RanksMax)
	if to == nil {
		answer.Code = effects.TooMany
		return
	}
	to.conns++
	answer.Conn = effects.Conn(g.id())
	g.conns = append(g.conns, conn{answer.Conn, to})
}

// Stop completes the rank's hellos, because the engines that they wait for may never answer. Registrations are answered
// when their agents end.
func (g *inward) Stop(out *Out) {
	for _, p := range g.producers {
		for _, r := range p.ranks {
			if r.asker.corr != 0 {
				unanswered(r.asker.corr, effects.Closed, out)
				r.asker = asker{}
			}
		}
	}
}

// at returns the index of an open conn, or -1.
func (g *inward) at(id effects.Conn) int {
	for i := range g.conns {
		if g.conns[i].id == id {
			return i
		}
	}
	return -1
}

// Close handles the rank's Close effect. A request that was sent on the conn continues; only a repetition of the
// request gets its result.
func (g *inward) Close(id effects.Conn, out *Out) {
	i := g.at(id)
	if i < 0 {
		return
	}
	to := g.conns[i].to
	to.conns--
	g.conns = append(g.conns[:i], g.conns[i+1:]...)
	if to.asker.conn == id && to.asker.corr != 0 {
		unanswered(to.asker.corr, effects.Closed, out)
		to.asker = asker{}
	}
	for _, a := range g.asks {
		for _, who := range []*asker{&a.asker, &a.off} {
			if who.conn == id && who.corr != 0 {
				unanswered(who.corr, effects.Closed, out)
				*who = asker{}
			}
		}
	}
}

// unanswered completes a Send of the rank without a reply.
func unanswered(corr effects.Corr, code effects.Code, out *Out) {
	out.Events = append(out.Events, &effects.Unanswered{Corr: corr, Code: code})
}

// Send handles the rank's Send effect: a step of its hello, or a message about registrations.
func (g *inward) Send(now effects.Time, e *effects.Send, out *Out) {
	i := g.at(e.Conn)
	if i < 0 {
		unanswered(e.Corr, effects.Closed, out)
		return
	}
	to, who := g.conns[i].to, asker{e.Corr, e.Conn}
	switch protocol.PushWordOf(e.Body) {
	case protocol.PushRegisters:
		if g.reg.Decode(e.Body, &g.cfg.Wire) == nil && g.reg.HasExt {
			g.register(now, to, who, out)
			return
		}
	case protocol.PushWithdraws:
		if g.off.Decode(e.Body, &g.cfg.Wire) == nil {
			g.withdraw(now, to, who, out)
			return
		}
	case protocol.PushKeeps:
		if g.keep.Decode(e.Body, &g.cfg.Wire) == nil {
			g.keepsAlive(now, to, who, out)
			return
		}
	case protocol.PushUnknown:
		if g.init.Decode(e.Body, &g.cfg.Wire) == nil && g.init.HasExt {
			g.greeted(to, who, g.init.Ext.Stamps.ClockNS, out)
			return
		}
		if g.mem.Decode(e.Body, &g.cfg.Wire) == nil {
			g.listed(now, to, who, out)
			return
		}
	}
	unanswered(e.Corr, effects.Unsupported, out)
}

// An asker is a request of the rank that has no reply yet; the zero value is none.
type asker struct {
	corr effects.Corr
	conn effects.Conn
}

// answer sends the reply, if there is a request to answer.
func (a *asker) answer(body []byte, out *Out) {
	if a.corr != 0 {
		out.Events = append(out.Events, &effects.Replied{Corr: a.corr, Body: body})
	}
	*a = asker{}
}

// ends answers a message about registrations.
func (g *core) ends(now effects.Time, a *asker, who effects.Incarnation, operation uint64, echo int64,
	code effects.Code, why *effects.Why, out *Out) {
	m := protocol.PushEnd{
		Version: link.VersionMax, Incarnation: protocol.UUID(who), Operation: operation, Code: uint32(code),
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: echo},
	}
	if why != nil {
		m.Reason = why.Reason()
	}
	a.answer(m.Append(nil), out)
}

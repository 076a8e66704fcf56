package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A conn is a connection that the rank opened to a rank of a plain engine.
type conn struct {
	id   effects.Conn
	rank *producerRank
}

// HandleOpen handles the rank's Open effect, and completes the effect at once, as any transport may do before the peer
// is present.
func (g *producerSide) HandleOpen(e *effects.Open, out *Effects) {
	reply := &effects.Opened{Corr: e.Corr}
	out.Events = append(out.Events, reply)
	place, ok := ParsePlainRank(e.Addr)
	if !ok {
		reply.Code = effects.Invalid
		return
	}
	p := g.findOrAddProducer(place, out)
	if p == nil {
		reply.Code = effects.TooMany
		return
	}
	to := p.findOrAddRank(place, g.cfg.RanksMax)
	if to == nil {
		reply.Code = effects.TooMany
		return
	}
	to.connCount++
	reply.Conn = effects.Conn(g.newID())
	g.conns = append(g.conns, conn{reply.Conn, to})
}

// CancelHellos completes the rank's hellos, because the engines that they wait for may never answer. Registrations are
// answered when their agents end.
func (g *producerSide) CancelHellos(out *Effects) {
	for _, p := range g.producers {
		for _, r := range p.ranks {
			if r.helloRequest.corr != 0 {
				failSend(r.helloRequest.corr, effects.Closed, out)
				r.helloRequest = rankRequest{}
			}
		}
	}
}

// connIndex returns the index of an open conn, or -1.
func (g *producerSide) connIndex(id effects.Conn) int {
	for i := range g.conns {
		if g.conns[i].id == id {
			return i
		}
	}
	return -1
}

// HandleClose handles the rank's Close effect. A request that was sent on the conn continues; only a repetition of the
// request gets its result.
func (g *producerSide) HandleClose(id effects.Conn, out *Effects) {
	i := g.connIndex(id)
	if i < 0 {
		return
	}
	to := g.conns[i].rank
	to.connCount--
	g.conns = append(g.conns[:i], g.conns[i+1:]...)
	if to.helloRequest.conn == id && to.helloRequest.corr != 0 {
		failSend(to.helloRequest.corr, effects.Closed, out)
		to.helloRequest = rankRequest{}
	}
	for _, a := range g.registrations {
		for _, req := range []*rankRequest{&a.registerRequest, &a.withdrawRequest} {
			if req.conn == id && req.corr != 0 {
				failSend(req.corr, effects.Closed, out)
				*req = rankRequest{}
			}
		}
	}
}

// failSend completes a Send of the rank without a reply.
func failSend(corr effects.Corr, code effects.Code, out *Effects) {
	out.Events = append(out.Events, &effects.Unanswered{Corr: corr, Code: code})
}

// HandleSend handles the rank's Send effect: a step of its hello, or a message about registrations.
func (g *producerSide) HandleSend(now effects.Time, e *effects.Send, out *Effects) {
	i := g.connIndex(e.Conn)
	if i < 0 {
		failSend(e.Corr, effects.Closed, out)
		return
	}
	to, req := g.conns[i].rank, rankRequest{e.Corr, e.Conn}
	switch protocol.PushKindOf(e.Body) {
	case protocol.PushKindRegistration:
		if g.registration.Decode(e.Body, &g.cfg.Wire) == nil && g.registration.HasExt {
			g.handleRegister(now, to, req, out)
			return
		}
	case protocol.PushKindWithdrawal:
		if g.withdrawal.Decode(e.Body, &g.cfg.Wire) == nil {
			g.handleWithdraw(now, to, req, out)
			return
		}
	case protocol.PushKindKeep:
		if g.keepAlive.Decode(e.Body, &g.cfg.Wire) == nil {
			g.handleKeepAlive(now, to, req, out)
			return
		}
	case protocol.PushKindUnknown:
		if g.helloRequest.Decode(e.Body, &g.cfg.Wire) == nil && g.helloRequest.HasExt {
			g.handleHello(now, to, req, g.helloRequest.Ext.Stamps.ClockNS, out)
			return
		}
		if g.memInfoRequest.Decode(e.Body, &g.cfg.Wire) == nil {
			g.handleMemInfo(now, to, req, out)
			return
		}
	}
	failSend(e.Corr, effects.Unsupported, out)
}

// A rankRequest is a request of the rank that has no reply yet; the zero value is none.
type rankRequest struct {
	corr effects.Corr
	conn effects.Conn
}

// sendReply sends the reply, if there is a request to answer.
func (a *rankRequest) sendReply(body []byte, out *Effects) {
	if a.corr != 0 {
		out.Events = append(out.Events, &effects.Replied{Corr: a.corr, Body: body})
	}
	*a = rankRequest{}
}

// sendEnd answers a message about registrations.
func (g *core) sendEnd(now effects.Time, a *rankRequest, incarnation effects.Incarnation, operation uint64, echo int64,
	code effects.Code, why *effects.Why, out *Effects) {
	m := protocol.PushEnd{
		Version: link.VersionMax, Incarnation: protocol.UUID(incarnation), Operation: operation, Code: uint32(code),
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: echo},
	}
	if why != nil {
		m.Reason = why.Reason()
	}
	a.sendReply(m.Append(nil), out)
}

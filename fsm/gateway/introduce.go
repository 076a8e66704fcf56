package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// introduces passes a registration to the rank, after a hello if the rank does not know the peer yet.
func (g *outward) introduces(now effects.Time, p *peer, x *incoming, out *Out) {
	if p.met {
		g.puts(now, p, x, out)
		return
	}
	p.waits = append(p.waits, x)
	g.greets(now, p, &p.joined.Consumer.Geometry, out)
}

// greets sends a hello to the rank in a peer's name.
func (g *outward) greets(now effects.Time, p *peer, of *geometry.Geometry, out *Out) {
	if p.asks {
		return
	}
	p.asks, p.met, p.conn = true, false, effects.Conn(g.id())
	m := protocol.HixlInitRequest{LocalID: []byte(p.id()), EngineID: []byte(p.id()), HasExt: true,
		Ext: g.says(now, p.who, 0, of, p.key)}
	g.put(p, hello, nil, effects.ChannelInit, m.Append(nil), out)
}

// id returns the name that a peer gives itself, for people.
func (p *peer) id() string {
	if p.of == nil {
		return p.name
	}
	return p.of.engine + " tp" + decimal(uint64(p.rank))
}

// put sends a request to the rank in a peer's name.
func (g *outward) put(p *peer, k kind, x *incoming, on effects.Channel, body []byte, out *Out) {
	r := effects.Request(g.id())
	g.questions = append(g.questions, question{request: r, of: p, kind: k, x: x})
	out.Events = append(out.Events, &effects.Received{Conn: p.conn, Channel: on, Request: r, Body: body})
}

// Reply handles the rank's reply to a request of the gateway.
func (g *outward) Reply(now effects.Time, e *effects.Reply, out *Out) {
	for i := range g.questions {
		if g.questions[i].request != e.Request {
			continue
		}
		q := g.questions[i]
		g.questions = append(g.questions[:i], g.questions[i+1:]...)
		switch q.kind {
		case hello:
			g.welcomed(now, q.of, e.Body, out)
		case list:
			g.acquainted(now, q.of, e.Body, out)
		case registers:
			g.ended(now, q.of, q.x, e.Body, out)
		case keeps:
			if g.end.Decode(e.Body, &g.cfg.Wire) == nil && effects.CodeFromWire(g.end.Code) == effects.Stale {
				g.keeper.met = false // The next heartbeat is preceded by a hello.
			}
		}
		if c := q.of.of; c != nil && c.leaving {
			g.leave(c, out)
		}
		return
	}
}

// welcomed handles the reply to a peer's hello, and sends the rank the description of the peer's memory.
func (g *outward) welcomed(now effects.Time, p *peer, body []byte, out *Out) {
	m := &g.inits
	if err := m.Decode(body, &g.cfg.Wire); err != nil || !m.HasExt || m.Ext.Code != 0 {
		why := effects.Why{Field: "hello", Theirs: "refused"}
		if err == nil {
			why.Said = effects.Words(m.Ext.Reason)
		}
		g.unwelcome(p, why, out)
		return
	}
	p.us, p.echo = m.Ext.Incarnation, m.Ext.Stamps.ClockNS
	l := protocol.HixlMemInfoRequest{LocalID: []byte(p.id()), HasExt: true,
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: p.echo}}
	if p.of != nil {
		l.Buffers = g.buffer(p.who, &p.joined.Consumer.Geometry)
		p.sum = register.Sum(register.Numbers(&p.joined.Consumer.Geometry), m.Ext.Geometry)
		own := g.says(now, p.who, 0, nil, p.key)
		l.Planes, l.Blobs = own.Planes, own.Blobs
	}
	g.put(p, list, nil, effects.ChannelInit, l.Append(nil), out)
}

// acquainted handles the last reply of a hello.
func (g *outward) acquainted(now effects.Time, p *peer, body []byte, out *Out) {
	m := protocol.HixlMemInfoResponse{}
	if err := m.Decode(body, &g.cfg.Wire); err != nil {
		g.unwelcome(p, effects.Why{Field: "buffers", Theirs: "refused"}, out)
		return
	}
	p.asks, p.met, p.echo = false, true, m.Stamps.ClockNS
	waits := p.waits
	p.waits = nil
	for _, x := range waits {
		g.puts(now, p, x, out)
	}
	if p == &g.keeper {
		g.beaten(now, out)
	}
}

// unwelcome ends the registrations that wait for a peer that the rank does not accept.
func (g *outward) unwelcome(p *peer, why effects.Why, out *Out) {
	p.asks = false
	why.Name = p.id()
	for _, x := range p.waits {
		g.remember(x)
	}
	if len(p.waits) > 0 {
		out.note("what an engine registered is not taken", why)
	}
	p.waits = nil
}

// puts sends a registration to the rank as a peer of kvferry would. Its blocks are the last blocks of the request,
// because a plain engine states no positions.
func (g *outward) puts(now effects.Time, p *peer, x *incoming, out *Out) {
	m := &x.reg
	op := g.id()
	m.HasExt = true
	m.Ext = protocol.PushRegistrationExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.who), To: p.us, Operation: op, Attempt: 1, Tail: true,
		Grant: op, GrantedNS: int64(now), LeaseNS: uint64(2 * g.cfg.Patience), PatienceNS: uint64(g.cfg.Patience),
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: p.echo}, First: m.Ext.First[:0], Ends: m.Ext.Ends[:0],
		Caches: p.sum,
	}
	for _, list := range m.Blocks {
		m.Ext.First = append(m.Ext.First, 0)
		m.Ext.Ends = append(m.Ext.Ends, uint64(len(list))*uint64(g.cfg.Own.PerLogical))
	}
	g.put(p, registers, x, effects.ChannelRegister, m.Append(nil), out)
}

// ended handles the end of a registration: nothing of it is written any more. The engine is notified only if everything
// was written.
func (g *outward) ended(now effects.Time, p *peer, x *incoming, body []byte, out *Out) {
	m := &g.end
	code := effects.Malformed
	if m.Decode(body, &g.cfg.Wire) == nil {
		code = effects.CodeFromWire(m.Code)
		if m.Stamps.ClockNS != 0 {
			p.echo = m.Stamps.ClockNS
		}
	}
	if code == effects.Stale && x.tries < g.cfg.TriesMax {
		x.tries++
		p.met = false
		g.introduces(now, p, x, out)
		return
	}
	g.remember(x)
	if code != effects.OK {
		out.note("what an engine registered is not written, and waits there until its router gives it up", effects.Why{
			Name: p.id(), Peer: p.who, Field: "request_id", Theirs: effects.Words(x.request), Ours: code.String(),
			Said: effects.Words(m.Reason),
		})
		return
	}
	done := protocol.PushCompletion{RequestID: x.request, Ranks: g.cfg.Own.Ranks}
	out.Says = append(out.Says, Say{Agent: p.of.writer, To: p.name, Body: done.Append(nil)})
}

// beaten sends the rank the requests that engines want to be kept.
func (g *outward) beaten(now effects.Time, out *Out) {
	p := &g.keeper
	if !p.met {
		g.greets(now, p, nil, out)
		return
	}
	if len(g.beats) == 0 {
		return
	}
	m := protocol.PushKeep{Version: link.VersionMax, Incarnation: protocol.UUID(p.who), To: p.us, Keep: g.beats}
	g.put(p, keeps, nil, effects.ChannelRegister, m.Append(nil), out)
	g.beats = g.beats[:0]
}

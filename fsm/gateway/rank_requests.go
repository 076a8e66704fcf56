package gateway

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// forwardRegistration passes a registration to the rank, after a hello if the rank does not know the peer yet.
func (g *consumerSide) forwardRegistration(now effects.Time, p *peer, x *engineRegistration, out *Effects) {
	if p.knownToRank {
		g.sendRegistration(now, p, x, out)
		return
	}
	p.pending = append(p.pending, x)
	g.sendHello(now, p, out)
}

// sendNextHello sends the hello of a peer that waits for the end of another hello.
func (g *consumerSide) sendNextHello(now effects.Time, out *Effects) {
	if g.heartbeatPeer.helloWaits {
		g.sendHello(now, &g.heartbeatPeer, out)
		return
	}
	for _, c := range g.consumers {
		for _, p := range c.peers {
			if p.helloWaits {
				g.sendHello(now, p, out)
				return
			}
		}
	}
}

// sendHello sends a hello to the rank in a peer's name, or has it wait for the end of another. One hello is in flight at a
// time, and the registrations that wait for it are sent before the next: a rank whose table of peers is full forgets a
// peer that has only sent a hello when another peer sends one. Example: two ranks of an engine register at the same time,
// and each hello replaces the other.
func (g *consumerSide) sendHello(now effects.Time, p *peer, out *Effects) {
	if p.helloPending {
		return
	}
	p.helloWaits = true
	for i := range g.requests {
		if k := g.requests[i].kind; k == requestHello || k == requestBufferList {
			return // HandleReply continues.
		}
	}
	var geo *geometry.Geometry
	if p.consumer != nil {
		geo = &p.joined.Consumer.Geometry
	}
	p.helloWaits = false
	p.helloPending, p.knownToRank, p.conn = true, false, effects.Conn(g.newID())
	m := protocol.HixlInitRequest{LocalID: []byte(p.displayName()), EngineID: []byte(p.displayName()), HasExt: true,
		Ext: g.makeHelloExt(now, p.incarnation, 0, geo, p.key)}
	g.sendToRank(p, requestHello, nil, effects.ChannelInit, m.Append(nil), out)
}

// displayName returns the name that a peer gives itself, for people.
func (p *peer) displayName() string {
	if p.consumer == nil {
		return p.agentName
	}
	return p.consumer.engine + " tp" + formatDecimal(uint64(p.rank))
}

// sendToRank sends a request to the rank in a peer's name.
func (g *consumerSide) sendToRank(p *peer, k requestKind, x *engineRegistration, channel effects.Channel, body []byte, out *Effects) {
	r := effects.Request(g.newID())
	g.requests = append(g.requests, gatewayRequest{request: r, peer: p, kind: k, registration: x})
	out.Events = append(out.Events, &effects.Received{Conn: p.conn, Channel: channel, Request: r, Body: body})
}

// HandleReply handles the rank's reply to a request of the gateway.
func (g *consumerSide) HandleReply(now effects.Time, e *effects.Reply, out *Effects) {
	for i := range g.requests {
		if g.requests[i].request != e.Request {
			continue
		}
		q := g.requests[i]
		g.requests = append(g.requests[:i], g.requests[i+1:]...)
		switch q.kind {
		case requestHello:
			g.handleHelloReply(now, q.peer, e.Body, out)
		case requestBufferList:
			g.handleMemInfoReply(now, q.peer, e.Body, out)
		case requestRegister:
			g.handleEnd(now, q.peer, q.registration, e.Body, out)
		case requestKeepAlive:
			if g.pushEnd.Decode(e.Body, &g.cfg.Wire) == nil && effects.CodeFromWire(g.pushEnd.Code) == effects.Stale {
				g.heartbeatPeer.knownToRank = false // The next heartbeat is preceded by a hello.
			}
		}
		g.sendNextHello(now, out)
		if c := q.peer.consumer; c != nil && c.leaving {
			g.beginRemoval(c, out)
		}
		return
	}
}

// handleHelloReply handles the reply to a peer's hello, and sends the rank the description of the peer's memory.
func (g *consumerSide) handleHelloReply(now effects.Time, p *peer, body []byte, out *Effects) {
	m := &g.helloReply
	if err := m.Decode(body, &g.cfg.Wire); err != nil || !m.HasExt || m.Ext.Code != 0 {
		why := effects.Why{Field: "hello", Theirs: "refused"}
		if err == nil {
			why.Said = effects.SanitizeText(m.Ext.Reason)
		}
		g.failPeer(p, why, out)
		return
	}
	p.rankIncarnation, p.echoNS = m.Ext.Incarnation, m.Ext.Stamps.ClockNS
	l := protocol.HixlMemInfoRequest{LocalID: []byte(p.displayName()), HasExt: true,
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: p.echoNS}}
	if p.consumer != nil {
		l.Buffers = g.bufferInfos(p.incarnation, &p.joined.Consumer.Geometry)
		p.geometrySum = register.Checksum(register.EncodeGeometry(&p.joined.Consumer.Geometry), m.Ext.Geometry)
		own := g.makeHelloExt(now, p.incarnation, 0, nil, p.key)
		l.Planes, l.Blobs = own.Planes, own.Blobs
	}
	g.sendToRank(p, requestBufferList, nil, effects.ChannelInit, l.Append(nil), out)
}

// handleMemInfoReply handles the last reply of a hello.
func (g *consumerSide) handleMemInfoReply(now effects.Time, p *peer, body []byte, out *Effects) {
	m := protocol.HixlMemInfoResponse{}
	if err := m.Decode(body, &g.cfg.Wire); err != nil {
		// The hello of another node may have replaced the peer at the rank.
		if p.helloTries++; p.consumer != nil && p.helloTries <= g.cfg.TriesMax {
			p.helloPending = false
			g.sendHello(now, p, out)
			return
		}
		g.failPeer(p, effects.Why{Field: "buffers", Theirs: "refused"}, out)
		return
	}
	p.helloPending, p.knownToRank, p.echoNS, p.helloTries = false, true, m.Stamps.ClockNS, 0
	pending := p.pending
	p.pending = nil
	for _, x := range pending {
		g.sendRegistration(now, p, x, out)
	}
	if p == &g.heartbeatPeer {
		g.sendKeepAlive(now, out)
	}
}

// failPeer ends the registrations that wait for a peer that the rank does not accept.
func (g *consumerSide) failPeer(p *peer, why effects.Why, out *Effects) {
	p.helloPending, p.helloTries = false, 0
	why.Name = p.displayName()
	for _, x := range p.pending {
		g.recordEnded(x)
	}
	if len(p.pending) > 0 {
		out.addReport("what an engine registered is not taken", why)
	}
	p.pending = nil
}

// sendRegistration sends a registration to the rank as a peer of kvferry would. Its blocks are the last blocks of the
// request, because a plain engine states no positions.
func (g *consumerSide) sendRegistration(now effects.Time, p *peer, x *engineRegistration, out *Effects) {
	m := &x.message
	op, left := g.newID(), max(1, x.until.Sub(now)) // What was sent before, and refused as Stale, counts.
	m.HasExt = true
	m.Ext = protocol.PushRegistrationExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.incarnation), To: p.rankIncarnation, Operation: op, Attempt: 1, Tail: true,
		Grant: op, GrantedNS: int64(now), LeaseNS: uint64(2 * left), PatienceNS: uint64(left),
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: p.echoNS}, First: m.Ext.First[:0], Ends: m.Ext.Ends[:0],
		Caches: p.geometrySum,
	}
	for _, list := range m.Blocks {
		m.Ext.First = append(m.Ext.First, 0)
		m.Ext.Ends = append(m.Ext.Ends, uint64(len(list))*uint64(g.cfg.Own.PerLogical))
	}
	g.sendToRank(p, requestRegister, x, effects.ChannelRegister, m.Append(nil), out)
}

// handleEnd handles the end of a registration: nothing of it is written any more. The engine is notified only if
// everything was written.
func (g *consumerSide) handleEnd(now effects.Time, p *peer, x *engineRegistration, body []byte, out *Effects) {
	m := &g.pushEnd
	code := effects.Malformed
	if m.Decode(body, &g.cfg.Wire) == nil {
		code = effects.CodeFromWire(m.Code)
		if m.Stamps.ClockNS != 0 {
			p.echoNS = m.Stamps.ClockNS
		}
	}
	if code == effects.Stale && x.tries < g.cfg.TriesMax {
		x.tries++
		p.knownToRank = false
		g.forwardRegistration(now, p, x, out)
		return
	}
	g.recordEnded(x)
	if code != effects.OK {
		out.addReport("what an engine registered is not written, and waits there until its router gives it up", effects.Why{
			Name: p.displayName(), Peer: p.incarnation, Field: "request_id", Theirs: effects.SanitizeText(x.requestID), Ours: code.String(),
			Said: effects.SanitizeText(m.Reason),
		})
		return
	}
	if p.consumer.writer == 0 {
		out.addReport("what an engine registered is written, and the engine cannot be told, because its writer is gone", effects.Why{
			Name: p.displayName(), Peer: p.incarnation, Field: "request_id", Theirs: effects.SanitizeText(x.requestID),
		})
		return
	}
	done := protocol.PushCompletion{RequestID: x.requestID, Ranks: g.cfg.Own.Ranks}
	out.Notifications = append(out.Notifications, Notification{Agent: p.consumer.writer, To: p.agentName, Body: done.Append(nil)})
}

// sendKeepAlive sends the rank the requests that engines want to be kept.
func (g *consumerSide) sendKeepAlive(now effects.Time, out *Effects) {
	p := &g.heartbeatPeer
	if !p.knownToRank {
		g.sendHello(now, p, out)
		return
	}
	if len(g.heartbeatIDs) == 0 {
		return
	}
	m := protocol.PushKeep{Version: link.VersionMax, Incarnation: protocol.UUID(p.incarnation), To: p.rankIncarnation, Keep: g.heartbeatIDs}
	g.sendToRank(p, requestKeepAlive, nil, effects.ChannelRegister, m.Append(nil), out)
	g.heartbeatIDs = g.heartbeatIDs[:0]
}

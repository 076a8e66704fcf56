package link

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// This file is the server side of the handshake: the hello of LMCache's HIXL transfer channel, with kvferry's
// extensions.

// serverMessages is reused memory for the messages of the server side.
type serverMessages struct {
	initRequest    protocol.HixlInitRequest     `snap:"scratch"`
	buffersRequest protocol.HixlMemInfoRequest  `snap:"scratch"`
	buffersReply   protocol.HixlMemInfoResponse `snap:"scratch"`
	lookupRequest  protocol.P2PInitSideMsg      `snap:"scratch"`
	readyRequest   protocol.HixlReadyRequest    `snap:"scratch"`
	planeBlobs     [][]byte                     `snap:"scratch"`
}

// initExchange is a request on the init channel while it is being answered.
type initExchange struct {
	inboundView
	ev *effects.Received
}

// HandleInit answers a request on the init channel. classRows counts, for each fairness class, what the rank keeps for
// it. If the hello takes the row of another inbound peer, TakeReplaced returns that peer's class afterwards.
func (l *Links) HandleInit(v *env.Env, ev *effects.Received, classRows []uint32) {
	if ev.Request == 0 {
		return
	}
	q, m, wire := initExchange{l.viewInbound(v), ev}, &l.in.messages, &l.cfg.Wire
	if needed := l.cfg.clientRoles(); ev.LacksRole(needed) {
		v.Out.Mark(Marks.RoleForbidden)
		q.refuseStep(effects.FactHelloRefused, effects.Forbidden, *MissingRoleReason(ev, needed))
		return
	}
	tag, err := protocol.PeekTag(ev.Body, wire)
	if err == nil {
		// A client sends no other message here. Renewals are sent to senders only.
		//exhaustive:ignore
		switch tag {
		case protocol.TagHixlInitRequest:
			if err = m.initRequest.Decode(ev.Body, wire); err == nil {
				q.handleHello(classRows)
				return
			}
		case protocol.TagHixlReadyRequest:
			if err = m.readyRequest.Decode(ev.Body, wire); err == nil {
				// HixlReadyRequest concerns an engine connection, which only bearer planes have.
				if l.cfg.Bearer {
					ok := protocol.HixlReadyResponse{OK: true}
					q.sendReply(ok.Append(v.Out.Arena()))
				} else {
					q.refuseVanilla(m.readyRequest.LocalID)
				}
				return
			}
		case protocol.TagHixlMemInfoRequest:
			if err = m.buffersRequest.Decode(ev.Body, wire); err == nil {
				q.handleBufferList()
				return
			}
		case protocol.TagP2PInitSideMsg:
			if len(l.cfg.LookupAddr) == 0 {
				v.Out.Mark(Marks.SharesNothing)
				q.refuseStep(effects.FactHelloRefused, effects.Unsupported, effects.Why{
					Field: "enable_p2p", Ours: "false", Theirs: "true (the peer requests shared chunks)",
					Remedy: "set enable_p2p: true, or send the request to another node",
				})
				return
			}
			if err = m.lookupRequest.Decode(ev.Body, wire); err == nil {
				where := protocol.P2PInitSideRetMsg{PeerLookupURL: l.cfg.LookupAddr}
				q.sendReply(where.Append(v.Out.Arena()))
				return
			}
		}
	}
	if theirs := protocol.ProgramOf(ev.Body, wire); theirs != "" {
		v.Out.Mark(Marks.OtherKind)
		q.refuseStep(effects.FactHelloRefused, effects.Unsupported, l.cfg.otherKindReason(theirs))
		return
	}
	v.Out.Mark(Marks.InitMalformed)
	why := DecodeReason(err)
	if err == nil {
		why = effects.Why{Field: "message", Ours: "a handshake", Theirs: tag.String()}
	}
	q.refuseStep(effects.FactMalformed, effects.Malformed, why)
}

// RefuseInit refuses a request on the init channel of a node that accepts no handshakes, because it is a sender.
func (l *Links) RefuseInit(v *env.Env, ev *effects.Received) {
	if ev.Request != 0 {
		v.Out.Mark(Marks.InitMalformed)
		why := effects.Why{Field: "pd_role", Ours: "sender", Theirs: "sender", Remedy: "send to receivers alone"}
		if theirs := protocol.ProgramOf(ev.Body, &l.cfg.Wire); theirs != "" {
			why = l.cfg.otherKindReason(theirs)
		}
		q := initExchange{l.viewInbound(v), ev}
		q.refuseStep(effects.FactMalformed, effects.Unsupported, why)
	}
}

// handleHello answers a hello.
func (q *initExchange) handleHello(classRows []uint32) {
	init, cfg, v := &q.in.messages.initRequest, q.cfg, q.v
	m := protocol.HixlInitResponse{EngineID: []byte(cfg.LocalID)}
	if init.HasExt {
		m.HasExt = true
		cfg.fillHello(&m.Ext, effects.Incarnation{})
		m.Ext.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: init.Ext.Stamps.ClockNS}
		code, why := effects.Forbidden, *OtherIdentityReason()
		if q.mayAdmit(effects.Incarnation(init.Ext.Incarnation), q.ev.Principal) {
			code, why = cfg.checkPeer(&init.Ext, true)
		} else {
			// The reply states no name of this node, so the sender can do nothing in the name of the peer (S29).
			v.Out.Mark(Marks.NameForbidden)
		}
		if code == effects.OK {
			if h := q.admitPeer(effects.Incarnation(init.Ext.Incarnation), q.ev.Origin, classRows); h == 0 {
				code, why = effects.TooMany, q.noRowReason()
			} else {
				q.recordHelloConn(h, q.ev.Conn, init.Ext.Stamps.ClockNS)
				g := q.rows.get(h)
				g.recordHello(q.ev, init.LocalID, init.Ext.Caps)
				g.geometry = append(g.geometry[:0], init.Ext.Geometry...)
				q.in.messages.planeBlobs = cfg.importData(q.in.messages.planeBlobs, g.peerID, g.selfID)
				m.Ext.Incarnation, m.Ext.Blobs = protocol.UUID(g.selfID), q.in.messages.planeBlobs
			}
		}
		if code != effects.OK {
			v.Out.Mark(Marks.HelloRefused)
			why.Name, why.Stage = effects.SanitizeText(init.LocalID), effects.StageHello
			why.Peer = effects.Incarnation(init.Ext.Incarnation)
			q.observeRefusal(effects.FactHelloRefused, code, &why)
			m.Ext.Code, m.Ext.Reason = uint32(code), why.Reason()
		}
	} else if cfg.Bearer {
		v.Out.Mark(Marks.VanillaHello)
	} else {
		// A plain peer would next connect to an engine that this node does not have.
		q.refuseVanilla(init.LocalID)
		return
	}
	q.sendReply(m.Append(v.Out.Arena()))
}

// noRowReason returns the reason that there is no row for a new peer.
func (q *initExchange) noRowReason() effects.Why {
	why := effects.Why{
		Field: "tables.peers", Ours: strconv.Itoa(int(q.cfg.PeersMax)) + ", all in use,",
		Remedy: "raise tables.peers of the receiver, or retry",
	}
	switch s := q.shareOfRows(q.ev.Origin); {
	case q.in.count < q.cfg.PeersMax:
		why.Ours = strconv.Itoa(int(q.cfg.PeersMax)) + ", of which this sender's host has " + strconv.Itoa(int(s.held)) +
			" in use, and the rest is for others,"
	case s.isShared && s.held >= s.most:
		why.Ours += " " + strconv.Itoa(int(s.held)) + " of them by this sender's host, which may have " + strconv.Itoa(int(s.most)) + ","
	}
	return why
}

// handleBufferList records the peer's buffers and replies with this node's buffers.
func (q *initExchange) handleBufferList() {
	mem, mems := &q.in.messages.buffersRequest, &q.in.messages.buffersReply
	switch g := q.findByConn(q.ev.Conn); {
	case g != nil && !q.ev.Principal.MayActFor(g.principal):
		q.v.Out.Mark(Marks.NameForbidden)
		q.refuseStep(effects.FactHelloRefused, effects.Forbidden, *OtherIdentityReason())
		return
	case g != nil:
		g.recordBuffers(q.v, q.cfg, mem)
	case mem.HasExt || !q.cfg.Bearer:
		// The peer sent no hello on this connection, or the hello was refused. Vanilla peers are not inbound peers, and
		// are served only if the planes support them.
		q.v.Out.Mark(Marks.InitMalformed)
		q.refuseStep(effects.FactMalformed, effects.Refused, effects.Why{
			Name: effects.SanitizeText(mem.LocalID), Field: "handshake", Ours: "HixlInitRequest first", Theirs: "HixlMemInfoRequest",
		})
		return
	}
	mems.Buffers = q.cfg.ownBuffers(mems.Buffers)
	mems.HasExt = mem.HasExt
	mems.Stamps = protocol.Stamps{ClockNS: int64(q.v.Now), EchoNS: mem.Stamps.ClockNS}
	q.sendReply(mems.Append(q.v.Out.Arena()))
}

// sendReply replies with the message that was just appended to the step's arena.
func (q *initExchange) sendReply(arena []byte) {
	q.v.Out.Reply(effects.Reply{Request: q.ev.Request, Body: q.v.Out.Cut(arena)})
}

// refuseStep refuses a step of the handshake. The reason is sent to the peer and reported here.
func (q *initExchange) refuseStep(fact effects.Fact, code effects.Code, why effects.Why) {
	why.Stage = effects.StageHello
	q.observeRefusal(fact, code, &why)
	m := protocol.HixlReadyResponse{Code: uint32(code), Reason: why.Reason()}
	q.sendReply(m.Append(q.v.Out.Arena()))
}

// observeRefusal reports a refused step of the handshake to the observer.
func (q *initExchange) observeRefusal(fact effects.Fact, code effects.Code, why *effects.Why) {
	q.v.Out.Observe(effects.Observe{Fact: fact, Code: code, ID: uint64(q.ev.Conn), Peer: why.Peer, Why: why})
}

// refuseVanilla refuses a peer without kvferry's extensions, where no plane could carry its data.
func (q *initExchange) refuseVanilla(name []byte) {
	q.v.Out.Mark(Marks.VanillaHelloRefused)
	why := q.cfg.otherKindReason("lmcache, transfer_channel hixl")
	why.Name = effects.SanitizeText(name)
	q.refuseStep(effects.FactHelloRefused, effects.Unsupported, why)
}

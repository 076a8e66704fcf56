package link

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/protocol"
)

// This file is the server side of the handshake: the hello of LMCache's HIXL transfer channel, with kvferry's
// extensions.

// helloIn is reused memory for the messages of the server side.
type helloIn struct {
	init    protocol.HixlInitRequest     `snap:"scratch"`
	mem     protocol.HixlMemInfoRequest  `snap:"scratch"`
	mems    protocol.HixlMemInfoResponse `snap:"scratch"`
	side    protocol.P2PInitSideMsg      `snap:"scratch"`
	ready   protocol.HixlReadyRequest    `snap:"scratch"`
	offered [][]byte                     `snap:"scratch"`
}

// question is a request on the init channel while it is being answered.
type question struct {
	hearing
	ev *effects.Received
}

// OnInit answers a request on the init channel. busy counts, for each fairness class, what the rank keeps for it. If
// the hello takes the row of another inbound peer, Replaced returns that peer's class afterwards.
func (l *Links) OnInit(v *env.Env, ev *effects.Received, busy []uint32) {
	if ev.Request == 0 {
		return
	}
	q, m, wire := question{l.hearing(v), ev}, &l.in.hello, &l.cfg.Wire
	tag, err := protocol.PeekTag(ev.Body, wire)
	if err == nil {
		// A client sends no other message here. Renewals are sent to senders only.
		//exhaustive:ignore
		switch tag {
		case protocol.TagHixlInitRequest:
			if err = m.init.Decode(ev.Body, wire); err == nil {
				q.welcome(busy)
				return
			}
		case protocol.TagHixlReadyRequest:
			if err = m.ready.Decode(ev.Body, wire); err == nil {
				// HixlReadyRequest concerns an engine connection, which only bearer planes have.
				if l.cfg.Bearer {
					ok := protocol.HixlReadyResponse{OK: true}
					q.answer(ok.Append(v.Out.Arena()))
				} else {
					q.turnAwayPlain(m.ready.LocalID)
				}
				return
			}
		case protocol.TagHixlMemInfoRequest:
			if err = m.mem.Decode(ev.Body, wire); err == nil {
				q.list()
				return
			}
		case protocol.TagP2PInitSideMsg:
			if len(l.cfg.Lookup) == 0 {
				v.Out.Mark(Marks.SharesNothing)
				q.turnAway(effects.FactHelloRefused, effects.Unsupported, effects.Why{
					Field: "enable_p2p", Ours: "false", Theirs: "asks what is shared", Remedy: "set it, or ask another one",
				})
				return
			}
			if err = m.side.Decode(ev.Body, wire); err == nil {
				where := protocol.P2PInitSideRetMsg{PeerLookupURL: l.cfg.Lookup}
				q.answer(where.Append(v.Out.Arena()))
				return
			}
		}
	}
	if theirs := protocol.Speaker(ev.Body, wire); theirs != "" {
		v.Out.Mark(Marks.OtherKind)
		q.turnAway(effects.FactHelloRefused, effects.Unsupported, l.cfg.otherKind(theirs))
		return
	}
	v.Out.Mark(Marks.InitMalformed)
	why := Undecodable(err)
	if err == nil {
		why = effects.Why{Field: "message", Ours: "a handshake", Theirs: tag.String()}
	}
	q.turnAway(effects.FactMalformed, effects.Malformed, why)
}

// RefuseInit refuses a request on the init channel of a node that accepts no handshakes, because it is a sender.
func (l *Links) RefuseInit(v *env.Env, ev *effects.Received) {
	if ev.Request != 0 {
		v.Out.Mark(Marks.InitMalformed)
		why := effects.Why{Field: "pd_role", Ours: "sender", Theirs: "sender", Remedy: "send to receivers alone"}
		if theirs := protocol.Speaker(ev.Body, &l.cfg.Wire); theirs != "" {
			why = l.cfg.otherKind(theirs)
		}
		q := question{l.hearing(v), ev}
		q.turnAway(effects.FactMalformed, effects.Unsupported, why)
	}
}

// welcome answers a hello.
func (q *question) welcome(busy []uint32) {
	init, cfg, v := &q.in.hello.init, q.cfg, q.v
	m := protocol.HixlInitResponse{EngineID: []byte(cfg.LocalID)}
	if init.HasExt {
		m.HasExt = true
		cfg.hello(&m.Ext, effects.Incarnation{})
		m.Ext.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: init.Ext.Stamps.ClockNS}
		code, why := cfg.judge(&init.Ext, true)
		if code == effects.OK {
			if h := q.admit(effects.Incarnation(init.Ext.Incarnation), busy); h == 0 {
				code, why = effects.TooMany, effects.Why{
					Field: "tables.peers", Ours: strconv.Itoa(int(cfg.PeersMax)) + ", all in use,",
					Remedy: "raise tables.peers of the receiver, or retry",
				}
			} else {
				q.said(h, q.ev.Conn, init.Ext.Stamps.ClockNS)
				g := q.rows.get(h)
				g.met(init.LocalID, init.Ext.Caps)
				g.geometry = append(g.geometry[:0], init.Ext.Geometry...)
				q.in.hello.offered = cfg.blobs(q.in.hello.offered, g.who, g.us)
				m.Ext.Incarnation, m.Ext.Blobs = protocol.UUID(g.us), q.in.hello.offered
			}
		}
		if code != effects.OK {
			v.Out.Mark(Marks.HelloRefused)
			why.Name, why.Stage = effects.Words(init.LocalID), effects.StageHello
			why.Peer = effects.Incarnation(init.Ext.Incarnation)
			q.note(effects.FactHelloRefused, code, &why)
			m.Ext.Code, m.Ext.Reason = uint32(code), why.Reason()
		}
	} else if cfg.Bearer {
		v.Out.Mark(Marks.VanillaHello)
	} else {
		// A plain peer would next connect to an engine that this node does not have.
		q.turnAwayPlain(init.LocalID)
		return
	}
	q.answer(m.Append(v.Out.Arena()))
}

// list records the peer's buffers and replies with this node's buffers.
func (q *question) list() {
	mem, mems := &q.in.hello.mem, &q.in.hello.mems
	switch g := q.on(q.ev.Conn); {
	case g != nil:
		g.listed(q.v, q.cfg, mem)
	case mem.HasExt || !q.cfg.Bearer:
		// The peer sent no hello on this connection, or the hello was refused. Plain peers are not inbound peers, and
		// are served only if the planes support them.
		q.v.Out.Mark(Marks.InitMalformed)
		q.turnAway(effects.FactMalformed, effects.Refused, effects.Why{
			Name: effects.Words(mem.LocalID), Field: "handshake", Ours: "HixlInitRequest first", Theirs: "HixlMemInfoRequest",
		})
		return
	}
	mems.Buffers = q.cfg.buffers(mems.Buffers)
	mems.HasExt = mem.HasExt
	mems.Stamps = protocol.Stamps{ClockNS: int64(q.v.Now), EchoNS: mem.Stamps.ClockNS}
	q.answer(mems.Append(q.v.Out.Arena()))
}

// answer replies with the message that was just appended to the step's arena.
func (q *question) answer(arena []byte) {
	q.v.Out.Reply(effects.Reply{Request: q.ev.Request, Body: q.v.Out.Cut(arena)})
}

// turnAway refuses a step of the handshake. The reason is sent to the peer and reported here.
func (q *question) turnAway(as effects.Fact, code effects.Code, why effects.Why) {
	why.Stage = effects.StageHello
	q.note(as, code, &why)
	m := protocol.HixlReadyResponse{Code: uint32(code), Reason: why.Reason()}
	q.answer(m.Append(q.v.Out.Arena()))
}

// note reports a refused step of the handshake to the observer.
func (q *question) note(as effects.Fact, code effects.Code, why *effects.Why) {
	q.v.Out.Observe(effects.Observe{Fact: as, Code: code, ID: uint64(q.ev.Conn), Peer: why.Peer, Why: why})
}

// turnAwayPlain refuses a peer without kvferry's extensions, where no plane could carry its data.
func (q *question) turnAwayPlain(name []byte) {
	q.v.Out.Mark(Marks.VanillaHelloRefused)
	why := q.cfg.otherKind("lmcache, transfer_channel hixl")
	why.Name = effects.Words(name)
	q.turnAway(effects.FactHelloRefused, effects.Unsupported, why)
}

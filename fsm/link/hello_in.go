package link

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/protocol"
)

// The hello of LMCache's HIXL transfer channel, with our extensions, server side, and what both sides say of
// themselves.

// hello fills in what we say of ourselves at either end.
func (l *Links) hello(ext *protocol.HelloExt, us effects.Incarnation) {
	*ext = protocol.HelloExt{
		ProtoMin: VersionMin, ProtoMax: VersionMax,
		Incarnation: protocol.UUID(us),
		Caps:        protocol.CapCommit | protocol.CapLease | protocol.CapPull,
		PageBytes:   l.cfg.PageBytes,
		Layout:      l.cfg.Layout,
		Planes:      l.cfg.PlaneNames,
	}
	if l.cfg.Renews {
		ext.Caps |= protocol.CapRenew
	}
}

// blobs are what a peer needs to reach our planes, and nobody but this peer: each ends with the token that the plane
// knows it by.
func (l *Links) blobs(peer, us effects.Incarnation) [][]byte {
	l.offered = l.offered[:0]
	for i, name := range l.cfg.PlaneNames {
		token := l.cfg.Key.Token(string(name), peer, us)
		l.offered = append(l.offered, append(append([]byte(nil), l.cfg.PlaneBlobs[i]...), token[:]...))
	}
	return l.offered
}

func (l *Links) buffers(into []protocol.BufferInfo) []protocol.BufferInfo {
	// The address stays on this node: our planes name pages by buffer and index.
	return append(into[:0], protocol.BufferInfo{
		UUID: l.cfg.Buffer, Size: uint64(l.cfg.Pages) * l.cfg.PageBytes, PageSize: l.cfg.PageBytes,
	})
}

// OnInit answers a message on the init channel. busy counts what is kept for each class. Replaced says whose class it
// took.
func (l *Links) OnInit(v *env.Env, ev *effects.Received, busy []uint32) {
	if ev.Request == 0 {
		return
	}
	tag, err := protocol.PeekTag(ev.Body, &l.cfg.Wire)
	if err == nil {
		switch tag {
		case protocol.TagHixlInitRequest:
			if err = l.init.Decode(ev.Body, &l.cfg.Wire); err == nil {
				l.welcome(v, ev, busy)
				return
			}
		case protocol.TagHixlReadyRequest:
			if err = l.ready.Decode(ev.Body, &l.cfg.Wire); err == nil {
				// Ready speaks of an engine connection, which only such planes have.
				if l.cfg.Bearer {
					l.replyReady(v, ev)
				} else {
					l.turnAwayPlain(v, ev, l.ready.LocalID)
				}
				return
			}
		case protocol.TagHixlMemInfoRequest:
			if err = l.mem.Decode(ev.Body, &l.cfg.Wire); err == nil {
				l.list(v, ev)
				return
			}
		case protocol.TagNone, protocol.TagAllocRequest, protocol.TagAllocResponse, protocol.TagAscendAllocResponse,
			protocol.TagProxyNotif, protocol.TagHixlInitResponse, protocol.TagHixlReadyResponse, protocol.TagHixlMemInfoResponse,
			protocol.TagPullReadyNotif, protocol.TagPullReadyDoneAck, protocol.TagPullDoneSignal,
			protocol.TagRenewRequest, protocol.TagRenewResponse:
			// Nothing that a client says here. Renewals are for senders.
		}
	}
	if theirs := protocol.Speaker(ev.Body, &l.cfg.Wire); theirs != "" {
		v.Out.Mark(MarkOtherKind)
		l.turnAway(v, ev, effects.FactHelloRefused, effects.Unsupported, l.otherKind(theirs))
		return
	}
	v.Out.Mark(MarkInitMalformed)
	why := Undecodable(err)
	if err == nil {
		why = effects.Why{Field: "message", Ours: "a handshake", Theirs: tag.String()}
	}
	l.turnAway(v, ev, effects.FactMalformed, effects.Malformed, why)
}

func (l *Links) welcome(v *env.Env, ev *effects.Received, busy []uint32) {
	m := protocol.HixlInitResponse{EngineID: []byte(l.cfg.LocalID)}
	if l.init.HasExt {
		m.HasExt = true
		l.hello(&m.Ext, effects.Incarnation{})
		m.Ext.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: l.init.Ext.Stamps.ClockNS}
		code, why := l.judge(&l.init.Ext)
		if code == effects.OK {
			if h := l.admit(effects.Incarnation(l.init.Ext.Incarnation), v, busy); h == 0 {
				code, why = effects.TooMany, effects.Why{
					Field: "tables.peers", Ours: strconv.Itoa(int(l.cfg.PeersMax)) + ", all in use,",
					Remedy: "raise tables.peers of the receiver, or retry",
				}
			} else {
				g := l.rows.Get(h)
				l.said(h, ev.Conn)
				g.met(l.init.LocalID, l.init.Ext.Caps)
				m.Ext.Incarnation, m.Ext.Blobs = protocol.UUID(g.us), l.blobs(g.who, g.us)
			}
		}
		if code != effects.OK {
			v.Out.Mark(MarkHelloRefused)
			why.Name, why.Stage = effects.Words(l.init.LocalID), effects.StageHello
			why.Peer = effects.Incarnation(l.init.Ext.Incarnation)
			l.note(v, ev, effects.FactHelloRefused, code, &why)
			m.Ext.Code, m.Ext.Reason = uint32(code), why.Reason()
		}
	} else if l.cfg.Bearer {
		v.Out.Mark(MarkPlainHello)
	} else {
		// A plain peer would now connect an engine that we do not have.
		l.turnAwayPlain(v, ev, l.init.LocalID)
		return
	}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// list takes the asker's buffers and answers with ours.
func (l *Links) list(v *env.Env, ev *effects.Received) {
	switch g := l.inboundOn(ev.Conn); {
	case g != nil:
		l.listedInbound(v, g)
	case l.mem.HasExt || !l.cfg.Bearer:
		// It said no hello here, or none that was welcome. Plain peers are no inbound peers, and have business here
		// only where planes serve them.
		v.Out.Mark(MarkInitMalformed)
		l.turnAway(v, ev, effects.FactMalformed, effects.Refused, effects.Why{
			Name: effects.Words(l.mem.LocalID), Field: "handshake", Ours: "HixlInitRequest first", Theirs: "HixlMemInfoRequest",
		})
		return
	}
	l.mems.Buffers = l.buffers(l.mems.Buffers)
	l.mems.HasExt = l.mem.HasExt
	l.mems.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: l.mem.Stamps.ClockNS}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(l.mems.Append(v.Out.Arena()))})
}

func (l *Links) replyReady(v *env.Env, ev *effects.Received) {
	m := protocol.HixlReadyResponse{OK: true}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// turnAway answers that a step of the handshake failed, and tells why at both ends.
func (l *Links) turnAway(v *env.Env, ev *effects.Received, as effects.Fact, code effects.Code, why effects.Why) {
	why.Stage = effects.StageHello
	l.note(v, ev, as, code, &why)
	m := protocol.HixlReadyResponse{Code: uint32(code), Reason: why.Reason()}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

func (l *Links) note(v *env.Env, ev *effects.Received, as effects.Fact, code effects.Code, why *effects.Why) {
	v.Out.Observe(effects.Observe{Fact: as, Code: code, ID: uint64(ev.Conn), Peer: why.Peer, Why: why})
}

// turnAwayPlain does so to a peer without our extensions, on planes where nothing of it could ever arrive.
func (l *Links) turnAwayPlain(v *env.Env, ev *effects.Received, name []byte) {
	v.Out.Mark(MarkPlainHelloRefused)
	why := l.otherKind("lmcache, transfer_channel hixl")
	why.Name = effects.Words(name)
	l.turnAway(v, ev, effects.FactHelloRefused, effects.Unsupported, why)
}

// RefuseInit answers what is nothing that a client says to us.
func (l *Links) RefuseInit(v *env.Env, ev *effects.Received) {
	if ev.Request != 0 {
		v.Out.Mark(MarkInitMalformed)
		why := effects.Why{Field: "pd_role", Ours: "sender", Theirs: "sender", Remedy: "send to receivers alone"}
		if theirs := protocol.Speaker(ev.Body, &l.cfg.Wire); theirs != "" {
			why = l.otherKind(theirs)
		}
		l.turnAway(v, ev, effects.FactMalformed, effects.Unsupported, why)
	}
}

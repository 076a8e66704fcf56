package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// A guest is a peer that shook hands with us: the receiver's side of a link. Its
// class number is its place in the fairness tables; class 0 is nobody's, and behind the guests' come
// those of peers without our extensions.
//
// It is who knows the name that it has for us and the one that we have for it, each of which was told to the other only. Who
// says hello in another name is another guest, and learns another name of ours.
type guest struct {
	incarnation effects.Incarnation // its name for us
	us          effects.Incarnation // our name for it
	caps        uint64
	seen        effects.Time
	spoke       bool         // in the name that it was told
	conn        effects.Conn // on which it said hello last
	reach       reach
}

// Guest says which class the peer has who shook hands as who and was told that we are us; nobody else has one.
func (l *Links) Guest(who, us effects.Incarnation, now effects.Time) (class int, ok bool) {
	h := l.findGuest(who)
	if h == 0 || !identity.Same(l.guests.Get(h).us, us) {
		return 0, false
	}
	g := l.guests.Get(h)
	g.seen, g.spoke = now, true
	return int(h.Slot()) + 1, true
}

// spokeFor is how much longer a guest keeps its place once it has spoken. Anybody can say hello in one name after the
// other, without hearing what it is told: such guests make room for one another first, and for who has business here
// last. It is bounded, so that former lives of peers make room for present ones that have said hello only.
const spokeFor = 60 * effects.Second

// stays says until when, compared with others, a guest keeps its place.
func (g *guest) stays() effects.Time {
	if g.spoke {
		return g.seen.Add(spokeFor)
	}
	return g.seen
}

// Who is the guest of a class; zero if there is none.
func (l *Links) Who(class int) effects.Incarnation {
	if g := l.guestOf(class); g != nil {
		return g.incarnation
	}
	return effects.Incarnation{}
}

func (l *Links) guestOf(class int) *guest { return l.guests.Get(l.guests.At(int32(class) - 1)) }

// Classes is the number of fairness classes.
func (l *Links) Classes() int { return int(l.cfg.PeersMax) + 1 + len(l.plains) }

// Guests is the number of guests known.
func (l *Links) Guests() int { return l.guests.Len() }

func (l *Links) findGuest(who effects.Incarnation) table.Handle {
	for p := l.byGuest.Seek(table.Hash(l.seed, who[:])); p.Found(); p = l.byGuest.Next(p) {
		if l.guests.Get(p.Handle()).incarnation == who {
			return p.Handle()
		}
	}
	return 0
}

// admit makes room for a guest: the one unseen for longest goes (stays), if it has no pages
// here and nothing is kept for it; two guests in one class would wait for each other.
func (l *Links) admit(who effects.Incarnation, v *env.Env, busy []uint32) table.Handle {
	if h := l.findGuest(who); h != 0 {
		l.guests.Get(h).seen = v.Now
		return h
	}
	if l.guests.Full() {
		var oldest table.Handle
		for slot := range l.guests.Slots() {
			h := l.guests.At(slot)
			if h == 0 || oldest != 0 && l.guests.Get(h).stays() >= l.guests.Get(oldest).stays() {
				continue
			}
			class := int(slot) + 1
			if v.Pool.ClassUse(class) == 0 && busy[class] == 0 && l.guests.Get(h).reach.idle() {
				oldest = h
			}
		}
		if oldest == 0 {
			return 0
		}
		was := l.guests.Get(oldest).incarnation
		l.unreach(v, l.guests.Get(oldest))
		l.byGuest.Remove(table.Hash(l.seed, was[:]), oldest)
		l.guests.Remove(oldest)
	}
	h, g := l.guests.Add()
	*g = guest{incarnation: who, us: l.cfg.Key.For(who), seen: v.Now, reach: g.reach.emptied()}
	l.byGuest.Add(table.Hash(l.seed, who[:]), h)
	return h
}

// OnInit answers a message on the init channel. busy counts what is kept for each class.
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
				l.replyReady(v, ev, l.cfg.Bearer)
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
	v.Out.Mark(MarkInitMalformed)
	v.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn)})
	l.replyReady(v, ev, false)
}

// RefuseInit answers what is nothing that a client says to us.
func (l *Links) RefuseInit(v *env.Env, ev *effects.Received) {
	if ev.Request != 0 {
		v.Out.Mark(MarkInitMalformed)
		v.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Unsupported, ID: uint64(ev.Conn)})
		l.replyReady(v, ev, false)
	}
}

func (l *Links) replyReady(v *env.Env, ev *effects.Received, ok bool) {
	m := protocol.HixlReadyResponse{OK: ok}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// list takes the asker's buffers and answers with ours.
func (l *Links) list(v *env.Env, ev *effects.Received) {
	switch g := l.guestOn(ev.Conn); {
	case g != nil:
		g.reach.listed(v.Now, &l.mem, l.cfg.PageBytes)
		l.learn(&g.reach, &l.mem)
	case l.mem.HasExt || !l.cfg.Bearer:
		// It said no hello here, or none that was welcome. Plain peers are no guests, and have business here only where planes serve them.
		v.Out.Mark(MarkInitMalformed)
		v.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Refused, ID: uint64(ev.Conn)})
		l.replyReady(v, ev, false)
		return
	}
	l.mems.Buffers = l.buffers(l.mems.Buffers)
	l.mems.HasExt = l.mem.HasExt
	l.mems.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: l.mem.Stamps.ClockNS}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(l.mems.Append(v.Out.Arena()))})
}

// guestOn is the guest that said hello on a connection.
func (l *Links) guestOn(conn effects.Conn) *guest {
	for slot := range l.guests.Slots() {
		if h := l.guests.At(slot); h != 0 && conn != 0 && l.guests.Get(h).conn == conn {
			return l.guests.Get(h)
		}
	}
	return nil
}

func (l *Links) welcome(v *env.Env, ev *effects.Received, busy []uint32) {
	m := protocol.HixlInitResponse{EngineID: []byte(l.cfg.LocalID)}
	if l.init.HasExt {
		m.HasExt = true
		l.hello(&m.Ext, effects.Incarnation{})
		m.Ext.Stamps = protocol.Stamps{ClockNS: int64(v.Now), EchoNS: l.init.Ext.Stamps.ClockNS}
		code, reason := l.judge(&l.init.Ext)
		if code == effects.OK {
			if h := l.admit(effects.Incarnation(l.init.Ext.Incarnation), v, busy); h == 0 {
				code, reason = effects.TooMany, fmt.Sprintf("all %d peer slots are busy: raise the bound or retry", l.cfg.PeersMax)
			} else {
				g := l.guests.Get(h)
				g.conn, g.caps = ev.Conn, l.init.Ext.Caps
				m.Ext.Incarnation, m.Ext.Blobs = protocol.UUID(g.us), l.blobs(g.incarnation, g.us)
			}
		}
		if code != effects.OK {
			v.Out.Mark(MarkHelloRefused)
			m.Ext.Code, m.Ext.Reason = uint32(code), []byte(reason)
		}
	} else if l.cfg.Bearer {
		v.Out.Mark(MarkPlainHello)
	} else {
		// A plain peer would now connect an engine that we do not have.
		v.Out.Mark(MarkPlainHelloRefused)
		l.replyReady(v, ev, false)
		return
	}
	v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// judge says whether both ends fit, by the same rule on both sides.
func (l *Links) judge(ext *protocol.HelloExt) (effects.Code, string) {
	switch {
	case ext.ProtoMax < VersionMin || ext.ProtoMin > VersionMax:
		return effects.Unsupported, fmt.Sprintf("kvf_proto: %d to %d here, %d to %d there: upgrade the older side", VersionMin, VersionMax, ext.ProtoMin, ext.ProtoMax)
	case ext.Incarnation == protocol.UUID{}:
		return effects.Malformed, "kvf_inc: missing: send the incarnation"
	case ext.PageBytes != l.cfg.PageBytes:
		return effects.Mismatch, fmt.Sprintf("page bytes: %d here, %d there: make chunk_size, model and dtype agree", l.cfg.PageBytes, ext.PageBytes)
	case ext.Layout != l.cfg.Layout:
		return effects.Mismatch, fmt.Sprintf("layout: %v here, %v there: make model, dtype and chunk_size agree", l.cfg.Layout, ext.Layout)
	}
	return effects.OK, ""
}

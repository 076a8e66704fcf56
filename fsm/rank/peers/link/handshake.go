package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// This file is the client side of a handshake. This node opens the init connection, sends a hello (hello_out.go),
// imports the first plane in this node's order of preference that the peer offers too (the next plane if that fails),
// and asks for the peer's buffers. Each stage has a deadline. Any failure ends the attempt (calling.fail).

// countsAsStale accounts for a completion. It reports whether the completion belongs to a former attempt or to an
// evicted peer.
func (c *outboundView) countsAsStale(ref kernel.Ref) bool {
	if c.p != nil {
		c.p.outstanding--
	} else {
		c.out.evictedCompletions--
	}
	if c.p == nil || c.p.epoch != ref.Attempt {
		c.v.Out.Mark(Marks.StaleCompletion)
		return true
	}
	return false
}

// OnOpened handles the completion of an Open of this package.
func (l *Links) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	c := l.viewOutbound(v, ref.Subject)
	if c.countsAsStale(ref) {
		if ev.Code == effects.OK {
			v.Out.Close(ev.Conn)
		}
		return
	}
	if ref.Kind >= kindOpenLane {
		c.onLaneOpened(ref, ev)
		return
	}
	p := c.p
	if ev.Code != effects.OK {
		p.unansweredHellos = 0 // the process that listens there next may be another than the one that was silent
		c.failPeer(ev.Code, notOpenedReason(c.p.addr.Host, ev.Code))
		p.absent = ev.Code == effects.Unreachable
		return
	}
	p.conn.OnOpened(v, ev, ref)
	p.enterState(v.Now, Greeting)
	c.sendHello()
	c.startStageTimer()
}

// OnUnanswered handles a request of a handshake that got no reply.
func (l *Links) OnUnanswered(v *env.Env, ref kernel.Ref, code effects.Code) {
	if c := l.viewOutbound(v, ref.Subject); !c.countsAsStale(ref) {
		c.failPeer(code, ConnEndedReason(code, l.cfg.ReplyTimeout))
	}
}

// OnReplied handles the reply to a request of a handshake.
func (l *Links) OnReplied(v *env.Env, ref kernel.Ref, ev *effects.Replied) {
	c := l.viewOutbound(v, ref.Subject)
	if c.countsAsStale(ref) {
		return
	}
	body := ev.Body
	c.p.conn.OnReplied(v.Now)
	c.p.heardAt = v.Now
	// The transport may have connected again between two requests, and reached another process, as after a restart.
	if ref.Kind != kindHello && !ev.Principal.MayActFor(c.x.principal) {
		v.Out.Mark(Marks.OtherServer)
		c.failPeer(effects.Stale, otherServerReason())
		return
	}
	if ref.Kind == kindHello {
		c.x.principal = ev.Principal
		c.x.tenants, c.x.realm = ev.Tenants, ev.Realm
	}
	// The scratch memory is passed beside c, so that the compiler can see that nothing of c escapes.
	//exhaustive:ignore
	switch ref.Kind {
	case kindHello:
		c.handleHelloReply(&l.out.messages, &l.cfg.Wire, body)
	case kindBuffers:
		c.handleBufferReply(&l.out.messages, &l.cfg.Wire, body)
	default:
		c.handleLookupReply(&l.out.messages, &l.cfg.Wire, body)
	}
}

// startImport continues the handshake after a hello was answered: met records the incarnation that replied and the
// capabilities, and starts to import the planes that the peer offers.
func (c *outboundView) startImport(peer effects.Incarnation, caps uint64, planes, blobs [][]byte) {
	c.x.peerID, c.x.formerPeerID, c.x.caps = peer, peer, caps
	c.x.link.setCommonPlanes(c.cfg.PlaneNames, planes, blobs)
	c.x.link.startAttempt()
	c.importNextPlane()
}

// importNextPlane requests the import of the next plane, or fails the attempt if no plane is left.
func (c *outboundView) importNextPlane() {
	k := &c.x.link
	if !k.hasNextPlane() {
		c.failPeer(effects.Unreachable, c.cfg.noPlaneReason(k.failedPlanes, c.out.messages.initReply.Ext.Planes))
		return
	}
	c.p.enterState(c.v.Now, Importing)
	k.importPlane(c.v, c.openCorr(kindImport), c.cfg.PlaneNames, c.x.peerID, c.x.selfID)
	c.startStageTimer()
}

// OnImported handles the completion of an Import.
func (l *Links) OnImported(v *env.Env, ref kernel.Ref, ev *effects.Imported) {
	if ref.Kind == kindReach {
		r := l.viewInbound(v).viewReach(ref.Subject)
		r.onImported(ref, ev)
		return
	}
	c := l.viewOutbound(v, ref.Subject)
	if c.countsAsStale(ref) {
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		return
	}
	if ev.Code != effects.OK {
		v.Out.Mark(Marks.PlaneFailed)
		if ev.Code == effects.Stale {
			c.failPeer(effects.Stale, effects.Why{Field: "incarnation", Theirs: "different from that of the hello"})
			return
		}
		c.x.link.failPlane(l.cfg.PlaneNames, ev.Code)
		c.importNextPlane()
		return
	}
	l.rows.setLink(c.p.row, ev.Link)
	c.p.enterState(v.Now, Listing)
	c.sendBufferRequest()
	c.startStageTimer()
}

// finishHandshake completes a handshake: the peer's buffers are known, and the peer is Ready. The init connection is
// closed, because nothing more is sent on it.
func (c *outboundView) finishHandshake() {
	v, p := c.v, c.p
	p.conn.Close(v)
	v.Timers.Stop(&p.timer)
	p.enterState(v.Now, Ready)
	p.failures, p.cause, p.why = 0, effects.OK, nil
	p.trustedUntil = v.Now.Add(c.cfg.UnfitBackoff)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkUp, ID: uint64(c.x.link.id), Peer: c.x.peerID})
	c.markChanged()
}

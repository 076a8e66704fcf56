package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// This file is the client side of a handshake. This node opens the init connection, sends a hello (hello_out.go),
// imports the first plane in this node's order of preference that the peer offers too (the next plane if that fails),
// and asks for the peer's buffers. Each stage has a deadline. Any failure ends the attempt (calling.fail).

// stale accounts for a completion. It reports whether the completion belongs to a former attempt or to an evicted peer.
func (c *calling) stale(ref kernel.Ref) bool {
	if c.p != nil {
		c.p.owed--
	} else {
		c.out.orphans--
	}
	if c.p == nil || c.p.epoch != ref.Attempt {
		c.v.Out.Mark(Marks.StaleCompletion)
		return true
	}
	return false
}

// OnOpened handles the completion of an Open of this package.
func (l *Links) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	c := l.calling(v, ref.Subject)
	if c.stale(ref) {
		if ev.Code == effects.OK {
			v.Out.Close(ev.Conn)
		}
		return
	}
	if ref.Kind >= kindOpenLane {
		c.laneOpened(ref, ev)
		return
	}
	p := c.p
	if ev.Code != effects.OK {
		p.silent = 0 // the process that listens there next may be another than the one that was silent
		c.fail(ev.Code, notOpened(c.p.where.Host, ev.Code))
		p.absent = ev.Code == effects.Unreachable
		return
	}
	p.conn.Opened(v, ev, ref)
	p.state = Greeting
	c.greet()
	c.stage()
}

// OnUnanswered handles a request of a handshake that got no reply.
func (l *Links) OnUnanswered(v *env.Env, ref kernel.Ref, code effects.Code) {
	if c := l.calling(v, ref.Subject); !c.stale(ref) {
		c.fail(code, HungUp(code, l.cfg.ReplyTimeout))
	}
}

// OnReplied handles the reply to a request of a handshake.
func (l *Links) OnReplied(v *env.Env, ref kernel.Ref, body []byte) {
	c := l.calling(v, ref.Subject)
	if c.stale(ref) {
		return
	}
	c.p.conn.Answered(v.Now)
	// The scratch memory is passed beside c, so that the compiler can see that nothing of c escapes.
	//exhaustive:ignore
	switch ref.Kind {
	case kindHello:
		c.greeted(&l.out.hello, &l.cfg.Wire, body)
	case kindList:
		c.told(&l.out.hello, &l.cfg.Wire, body)
	default:
		c.sided(&l.out.hello, &l.cfg.Wire, body)
	}
}

// met continues the handshake after a hello was answered: met records the incarnation that replied and the
// capabilities, and starts to import the planes that the peer offers.
func (c *calling) met(who effects.Incarnation, caps uint64, planes, blobs [][]byte) {
	c.x.who, c.x.former, c.x.caps = who, who, caps
	c.x.link.learn(c.cfg.PlaneNames, planes, blobs)
	c.x.link.begin()
	c.importNext()
}

// importNext requests the import of the next plane, or fails the attempt if no plane is left.
func (c *calling) importNext() {
	k := &c.x.link
	if !k.left() {
		c.fail(effects.Unreachable, c.cfg.noPlane(k.tried, c.out.hello.inits.Ext.Planes))
		return
	}
	c.p.state = Importing
	k.try(c.v, c.corr(kindImport), c.cfg.PlaneNames, c.x.who, c.x.us)
	c.stage()
}

// OnImported handles the completion of an Import.
func (l *Links) OnImported(v *env.Env, ref kernel.Ref, ev *effects.Imported) {
	if ref.Kind == kindReach {
		r := l.hearing(v).reaching(ref.Subject)
		r.ended(ref, ev)
		return
	}
	c := l.calling(v, ref.Subject)
	if c.stale(ref) {
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		return
	}
	if ev.Code != effects.OK {
		v.Out.Mark(Marks.PlaneFailed)
		if ev.Code == effects.Stale {
			c.fail(effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which said hello"})
			return
		}
		c.x.link.failed(l.cfg.PlaneNames, ev.Code)
		c.importNext()
		return
	}
	l.rows.made(c.p.row, ev.Link)
	c.p.state = Listing
	c.ask()
	c.stage()
}

// listed completes a handshake: the peer's buffers are known, and the peer is Ready. The init connection is closed,
// because nothing more is sent on it.
func (c *calling) listed() {
	v, p := c.v, c.p
	p.conn.Close(v)
	v.Timers.Stop(&p.timer)
	p.state, p.fails, p.cause, p.why = Ready, 0, effects.OK, nil
	p.trusted = v.Now.Add(c.cfg.UnfitBackoff)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkUp, ID: uint64(c.x.link.id), Peer: c.x.who})
	c.change()
}

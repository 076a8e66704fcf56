package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A handshake, client side: open the init connection, say hello (hello_out.go), import the first plane of ours that the
// peer offers (the next one if that fails), ask for the buffers. Each stage has a deadline, and any failure is a Fail.

// current finds the peer of a completion, or nil if it belongs to a former attempt.
func (l *Links) current(v *env.Env, ref kernel.Ref) *Outbound {
	p := l.peers.Get(ref.Subject)
	if p != nil {
		p.owed--
	} else {
		l.orphans--
	}
	if p == nil || p.epoch != ref.Attempt {
		v.Out.Mark(MarkStaleCompletion)
		return nil
	}
	return p
}

// OnOpened handles the completion of an Open of this room.
func (l *Links) OnOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	p := l.current(v, ref)
	if p == nil {
		if ev.Code == effects.OK {
			v.Out.Close(ev.Conn)
		}
		return
	}
	if ref.Kind >= kindOpenLane {
		l.onLaneOpened(v, ref, p, ev)
		return
	}
	if ev.Code != effects.OK {
		p.silent = 0 // Whoever listens there next is not whom it was asked of.
		l.Fail(v, ref.Subject, ev.Code, notOpened(ev.Code))
		p.absent = ev.Code == effects.Unreachable
		return
	}
	p.conn.Opened(v, ev, ref)
	p.state = Greeting
	l.greet(v, ref.Subject, p)
	l.stage(v, ref.Subject, p)
}

// OnUnanswered handles a Send of this room that got no answer.
func (l *Links) OnUnanswered(v *env.Env, ref kernel.Ref, code effects.Code) {
	if p := l.current(v, ref); p != nil {
		l.Fail(v, ref.Subject, code, HungUp(code, l.cfg.ReplyTimeout))
	}
}

// OnReplied handles an answer to a Send of this room.
func (l *Links) OnReplied(v *env.Env, ref kernel.Ref, body []byte) {
	p := l.current(v, ref)
	if p == nil {
		return
	}
	p.conn.Answered()
	if ref.Kind == kindHello {
		l.onHello(v, ref.Subject, p, body)
		return
	}
	l.onList(v, ref.Subject, p, body)
}

// met goes on with what a hello found: who answered, what it can, and the planes that it offers, each with a blob.
func (l *Links) met(
	v *env.Env, h table.Handle, p *Outbound, who effects.Incarnation, caps uint64, planes, blobs [][]byte,
) {
	x := l.rows.Get(p.row)
	x.who, x.caps = who, caps
	x.link.learn(l.cfg.PlaneNames, planes, blobs)
	x.link.begin()
	l.importNext(v, h, p)
}

func (l *Links) importNext(v *env.Env, h table.Handle, p *Outbound) {
	x := l.rows.Get(p.row)
	if !x.link.left() {
		l.Fail(v, h, effects.Unreachable, l.noPlane(x.link.tried, l.inits.Ext.Planes))
		return
	}
	p.state = Importing
	x.link.try(v, l.corr(v, kindImport, h, p), l.cfg.PlaneNames, x.who, x.us)
	l.stage(v, h, p)
}

// OnImported handles the completion of an Import.
func (l *Links) OnImported(v *env.Env, ref kernel.Ref, ev *effects.Imported) {
	if ref.Kind == kindReach {
		l.onReached(v, ref, ev)
		return
	}
	p := l.current(v, ref)
	if p == nil {
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		return
	}
	if ev.Code != effects.OK {
		v.Out.Mark(MarkPlaneFailed)
		if ev.Code == effects.Stale {
			l.Fail(v, ref.Subject, effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which said hello"})
			return
		}
		l.rows.Get(p.row).link.failed(l.cfg.PlaneNames, ev.Code)
		l.importNext(v, ref.Subject, p)
		return
	}
	l.made(p.row, ev.Link)
	p.state = Listing
	l.ask(v, ref.Subject, p)
	l.stage(v, ref.Subject, p)
}

// listed ends a handshake: the peer's buffers are known, and it is of use. Nothing more is said on its init connection.
func (l *Links) listed(v *env.Env, h table.Handle, p *Outbound) {
	p.conn.Close(v)
	v.Timers.Stop(&p.timer)
	p.state, p.fails, p.cause, p.why = Ready, 0, effects.OK, nil
	x := l.rows.Get(p.row)
	v.Out.Observe(effects.Observe{Fact: effects.FactLinkUp, ID: uint64(x.link.id), Peer: x.who})
	l.change(h, p)
}

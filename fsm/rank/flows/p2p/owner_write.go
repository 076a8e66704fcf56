package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/table"
)

// write starts the write. It ends before the requester's grant does, by this node's clock from before the grant was
// given (M4).
func (o *Owner) write(e *flow.Env, h table.Handle, x *push, over effects.Link) {
	e.Timers.Stop(&x.timer)
	e.Work.Spend(len(x.pairs))
	x.phase, x.link = pushWriting, over
	x.write.Begin(&e.Env, effects.Transfer{
		Link: over, Peer: x.who, Grant: x.grant, Pairs: x.pairs, Since: x.since, NotAfter: x.until,
	}, pushRef(h))
}

// written handles the end of a write. The requester receives the reply when nothing writes any more, whatever the
// result is.
func (o *Owner) written(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	x := o.pushes.rows.Get(h)
	if x.code = ev.Code; x.code == effects.PeerLost || x.code == effects.Stale {
		e.Links.Unreach(&e.Env, x.link)
	}
	if !x.write.Done(ev) {
		e.Out.Mark(Marks.PushUnsettled)
		x.phase = pushSettling
		if x.code == effects.OK {
			x.code = effects.Expired
		}
		return
	}
	o.endPush(e, h, x)
}

// settledPush handles the late notice that nothing writes any more.
func (o *Owner) settledPush(e *flow.Env, h table.Handle) {
	x := o.pushes.rows.Get(h)
	x.write.Settled()
	o.endPush(e, h, x)
}

// pushAgain records that an operation in progress is repeated. Only the latest attempt receives the reply.
func (o *Owner) pushAgain(e *flow.Env, ev *effects.Received, h table.Handle) {
	e.Out.Mark(Marks.PushAgain)
	x := o.pushes.rows.Get(h)
	x.asker, x.echo = ev.Request, o.get.Ext.Stamps.ClockNS
}

// reached records the end of an attempt to make the link to the pages of a class.
func (o *Owner) reached(class int, code effects.Code) {
	p := &o.pushes
	for h := p.waits[class].Front(); h != 0; h = p.waits[class].Front() {
		p.rows.Unlink(&p.waits[class], h)
		x := p.rows.Get(h)
		x.phase, x.code = pushUnlinked, code
		p.rows.PushBack(&p.ready, h)
	}
}

// Continue starts the writes to peers with a new link, and refuses requests without a link. It reports whether work
// is left for the next step.
func (o *Owner) Continue(e *flow.Env) (left bool) {
	p := &o.pushes
	for h := p.ready.Front(); h != 0; h = p.ready.Front() {
		if !e.Work.Left() {
			return true
		}
		e.Work.Spend(1)
		p.rows.Unlink(&p.ready, h)
		x := p.rows.Get(h)
		over := effects.Link(0)
		if x.code == effects.OK {
			over = e.Links.Reach(&e.Env, x.class)
		}
		switch {
		case over != 0:
			o.write(e, h, x, over)
		case x.code == effects.OK: // The link was lost again meanwhile.
			x.phase = pushLinking
			p.rows.PushBack(&p.waits[x.class], h)
		default:
			o.endPush(e, h, x)
		}
	}
	return false
}

// late ends a push without a link at the deadline.
func (o *Owner) late(e *flow.Env, h table.Handle) {
	p := &o.pushes
	x := p.rows.Get(h)
	if x.timer = 0; x.phase == pushLinking {
		p.rows.Unlink(&p.waits[x.class], h)
	} else {
		p.rows.Unlink(&p.ready, h)
	}
	x.code = effects.Unreachable
	o.endPush(e, h, x)
}

// endPush sends the reply of a push, unpins the chunks and removes the push.
func (o *Owner) endPush(e *flow.Env, h table.Handle, x *push) {
	e.Timers.Stop(&x.timer)
	o.begin(e, x.us, x.echo)
	if x.code == effects.OK {
		if o.reply.HitChunks = x.hits; o.loans.CutOf(x.loan) {
			o.sayCut()
		}
	} else {
		e.Out.Mark(Marks.PushFailed)
		o.excuse(x.code, flow.WhyEnded(x.code))
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactShared, Code: x.code, Count: o.reply.HitChunks, ID: uint64(x.grant), Peer: x.who,
	})
	e.Out.Reply(effects.Reply{Request: x.asker, Body: e.Out.Cut(o.reply.Append(e.Out.Arena()))})
	o.bury(e, x.class, x.who, x.operation, x.code, x.over)
	o.loans.Release(&e.Env, &e.Store, x.loan)
	o.pushes.share.Give(x.class)
	x.pairs = table.Shed(x.pairs)
	o.pushes.rows.Remove(h)
}

// excuse adds to the reply why there are no hits.
func (o *Owner) excuse(code effects.Code, why *effects.Why) {
	// Codes that only a data plane returns have no reason of their own.
	if why.Field == "" && why.Remedy == "" {
		*why = effects.Why{Field: "data plane", Ours: code.String()}
	}
	o.reply.Ext.Code, o.reply.Ext.Reason = uint32(code), why.Reason()
}

// bury stores a replay record of a request that this node might otherwise write for. From the reply on, the requester
// may reuse its pages, and on a leased plane only this record keeps a repetition of the request from being written
// again (M2).
func (o *Owner) bury(e *flow.Env, class int, who effects.Incarnation, operation uint64, code effects.Code,
	over effects.Time) {
	o.pushes.said.Say(replies.Said{
		Class: class, Peer: who, Operation: operation, Done: true, Code: code, When: e.Now, Over: over,
	})
}

// buried refuses a request that was answered before, and reports whether it did.
func (o *Owner) buried(e *flow.Env, ev *effects.Received, who effects.Incarnation) bool {
	if o.pushes.said.Find(who, o.get.Ext.Operation, o.get.Ext.Attempt) == nil {
		return false
	}
	e.Out.Mark(Marks.PushBuried)
	o.refuse(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "of a question that was answered"})
	return true
}

// ClassLeft handles that a class will belong to another peer.
func (o *Owner) ClassLeft(_ *flow.Env, class int) { o.pushes.said.Left(class) }

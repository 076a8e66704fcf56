package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/table"
)

// startWrite starts the write. It ends before the requester's grant does, by this node's clock from before the grant
// was given (M4).
func (o *Owner) startWrite(e *flow.Env, h table.Handle, x *pushRow, peerLink effects.Link) {
	e.Timers.Stop(&x.timer)
	e.Work.SpendRows(len(x.pairs))
	x.phase, x.link = pushWriting, peerLink
	x.transfer.Begin(&e.Env, effects.Transfer{
		Link: peerLink, Peer: x.peerID, Grant: x.writeGrant, Pairs: x.pairs, Since: x.grantedAfter, NotAfter: x.writeUntil,
	}, pushRef(h))
}

// onWriteDone handles the end of a write. The requester receives the reply when nothing writes any more, whatever the
// result is.
func (o *Owner) onWriteDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	x := o.pushes.rows.Get(h)
	if x.code = ev.Code; x.code == effects.PeerLost || x.code == effects.Stale {
		e.Links.DropInboundLink(&e.Env, x.link)
	}
	if !x.transfer.OnDone(ev) {
		e.Out.Mark(Marks.PushUnsettled)
		x.phase = pushSettling
		if x.code == effects.OK {
			x.code = effects.Expired
		}
		return
	}
	o.finishPush(e, h, x)
}

// onWriteSettled handles the late notice that nothing writes any more.
func (o *Owner) onWriteSettled(e *flow.Env, h table.Handle) {
	x := o.pushes.rows.Get(h)
	x.transfer.OnSettled()
	o.finishPush(e, h, x)
}

// redirectPushReply records that an operation in progress is repeated. Only the latest attempt receives the reply.
func (o *Owner) redirectPushReply(e *flow.Env, ev *effects.Received, h table.Handle) {
	e.Out.Mark(Marks.PushAgain)
	x := o.pushes.rows.Get(h)
	x.request, x.clockEcho = ev.Request, o.getMessage.Ext.Stamps.ClockNS
}

// onReachOutcome records the end of an attempt to make the link to the pages of a class.
func (o *Owner) onReachOutcome(class int, code effects.Code) {
	p := &o.pushes
	for h := p.waitingByClass[class].Front(); h != 0; h = p.waitingByClass[class].Front() {
		p.rows.Unlink(&p.waitingByClass[class], h)
		x := p.rows.Get(h)
		x.phase, x.code = pushLinkTried, code
		p.rows.PushBack(&p.ready, h)
	}
}

// ContinueWork starts the writes to peers with a new link, and refuses requests without a link. It reports whether work
// is left for the next step.
func (o *Owner) ContinueWork(e *flow.Env) (left bool) {
	p := &o.pushes
	for h := p.ready.Front(); h != 0; h = p.ready.Front() {
		if !e.Work.HasBudget() {
			return true
		}
		e.Work.SpendRows(1)
		p.rows.Unlink(&p.ready, h)
		x := p.rows.Get(h)
		peerLink := effects.Link(0)
		if x.code == effects.OK {
			peerLink = e.Links.ReachPeer(&e.Env, x.class)
		}
		switch {
		case peerLink != 0:
			o.startWrite(e, h, x, peerLink)
		case x.code == effects.OK: // The link was lost again meanwhile.
			x.phase = pushLinking
			p.rows.PushBack(&p.waitingByClass[x.class], h)
		default:
			o.finishPush(e, h, x)
		}
	}
	return false
}

// onPushDeadline ends a push without a link at the deadline.
func (o *Owner) onPushDeadline(e *flow.Env, h table.Handle) {
	p := &o.pushes
	x := p.rows.Get(h)
	if x.timer = 0; x.phase == pushLinking {
		p.rows.Unlink(&p.waitingByClass[x.class], h)
	} else {
		p.rows.Unlink(&p.ready, h)
	}
	x.code = effects.Unreachable
	o.finishPush(e, h, x)
}

// finishPush sends the reply of a push, unpins the chunks and removes the push.
func (o *Owner) finishPush(e *flow.Env, h table.Handle, x *pushRow) {
	e.Timers.Stop(&x.timer)
	o.startReplyTo(e, x.selfID, x.clockEcho)
	if x.code == effects.OK {
		o.reply.Ext.Sums = append(o.reply.Ext.Sums, x.sums...)
		if o.reply.HitChunks = x.hits; o.loans.IsLoanCut(x.loan) {
			o.addShareUsedUp()
		}
	} else {
		e.Out.Mark(Marks.PushFailed)
		o.addReason(x.code, flow.EndReason(x.code))
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactShared, Code: x.code, Count: o.reply.HitChunks, ID: uint64(x.writeGrant), Peer: x.peerID,
		Report: x.report(e),
	})
	e.Out.Reply(effects.Reply{Request: x.request, Body: e.Out.Cut(o.reply.Append(e.Out.Arena()))})
	o.addReplayRecord(e, x.class, x.peerID, x.operation, x.code, x.replayEnd)
	o.loans.ReleasePrefix(&e.Env, &e.Store, x.loan)
	o.pushes.share.Release(x.class)
	x.pairs, x.sums = table.TrimSlice(x.pairs), table.TrimSlice(x.sums)
	o.pushes.rows.Remove(h)
}

// addReason adds to the reply why there are no hits.
func (o *Owner) addReason(code effects.Code, why *effects.Why) {
	// Codes that only a data plane returns have no reason of their own.
	if why.Field == "" && why.Remedy == "" {
		*why = effects.Why{Field: "data plane", Ours: code.String()}
	}
	o.reply.Ext.Code, o.reply.Ext.Reason = uint32(code), why.Reason()
}

// addReplayRecord stores a replay record of a request that this node might otherwise write for. From the reply on, the
// requester may reuse its pages, and on a leased plane only this record keeps a repetition of the request from being
// written again (M2).
func (o *Owner) addReplayRecord(e *flow.Env, class int, peerID effects.Incarnation, operation uint64, code effects.Code,
	replayEnd effects.Time) {
	o.pushes.replays.Add(replies.Record{
		Class: class, Peer: peerID, Operation: operation, AllAttempts: true, Code: code, SentAt: e.Now, Expires: replayEnd,
	})
}

// refuseReplayed refuses a request that was answered before, and reports whether it did.
func (o *Owner) refuseReplayed(e *flow.Env, ev *effects.Received, peerID effects.Incarnation) bool {
	if o.pushes.replays.Find(peerID, o.getMessage.Ext.Operation, o.getMessage.Ext.Attempt) == nil {
		return false
	}
	e.Out.Mark(Marks.PushBuried)
	o.refuseGet(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "of a request that has been answered"})
	return true
}

// OnClassReassigned handles that a class will belong to another peer.
func (o *Owner) OnClassReassigned(_ *flow.Env, class int) { o.pushes.replays.DropClass(class) }

package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A copyRow is a request for chunks that are being copied to the arena, from where they are lent. The originals are
// pinned from the arrival of the request until all copies have settled, and the only reply is sent then. Invariant:
// nothing is lent that a device may still store into (M1), and nothing that is lent keeps the store from making room.
type copyRow struct {
	requestTrace
	request   effects.Request `snap:"skip"` // the latest attempt
	clockEcho int64           // clock reading of that attempt
	loan      table.Handle    // the pinned originals
	class     int
	peerID    effects.Incarnation
	selfID    effects.Incarnation
	copies    transfer.Copies
	// intactCopies is the number of copies, from the first on, that have not failed.
	intactCopies int
	// timer fires when the reply is of no use any more.
	timer kernel.TimerID `snap:"set"`
	code  effects.Code   // the reason why nothing will be lent
}

// copyTable holds the copyings of an Owner. Copyings and pushes count together as requests in service.
type copyTable struct {
	rows  table.Slab[copyRow]
	pairs []effects.CopyPair `snap:"scratch"`
}

// States of a copying, numbered after the states of pushes.
const (
	copyRunning = iota // copies are in flight
	// Nothing will be lent, and copies may still be in flight.
	copyStopping
	copyStateCount
)

func copyRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2POwner, Kind: kindCopy, Subject: h}
}

// checkService returns an error if a request of a peer must not be taken into service. No peer has more requests in
// service than it leaves for the remaining peers.
func (o *Owner) checkService(e *flow.Env, class int) (effects.Code, effects.Why) {
	if p := &o.pushes; p.share.Total() >= int(o.cfg.PushesMax) || !p.share.HasRoom(class) || !o.loans.CanLend(&e.Env, class) {
		e.Out.Mark(Marks.PushesFull)
		return effects.TooMany, effects.Why{
			Field: "p2p_max_concurrent_gets", Ours: flow.FormatCount(o.cfg.PushesMax) + ", and this peer has its share in progress",
			Remedy: "retry later, or raise the limit there",
		}
	}
	return effects.OK, effects.Why{}
}

// startCopy begins to copy the chunks that were found for a peer, as many as the peer's share of the arena permits.
func (o *Owner) startCopy(e *flow.Env, ev *effects.Received, request loan.Request) {
	if code, why := o.checkService(e, request.Class); code != effects.OK {
		o.refuseGet(e, ev, code, why)
		return
	}
	if o.loans.LimitToArena(&e.Env, request.Class) == 0 {
		e.Out.Mark(Marks.ArenaFull)
		o.refuseGet(e, ev, effects.TooMany, effects.Why{
			Field: "os_staging_bytes", Ours: flow.FormatCount(e.Arena.TotalPages()) + " pages, and this peer has its share of them",
			Remedy: "retry later, or raise the limit there",
		})
		return
	}
	m := &o.getMessage
	h, x := o.copies.rows.Add()
	request.Row = h
	pinned, originals := o.loans.HoldForCopy(&e.Env, &e.Store, request)
	*x = copyRow{
		requestTrace: o.traceOfRequest(e),
		request:      ev.Request, clockEcho: m.Ext.Stamps.ClockNS, loan: pinned, class: request.Class, peerID: request.Reader.PeerID,
		selfID: request.Reader.SelfID,
		copies: x.copies.Recycle(), intactCopies: len(originals),
	}
	o.pushes.share.Acquire(request.Class)
	timeout := effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.ReadLeaseMax)))
	if timeout == 0 {
		timeout = e.Cfg.ReadLeaseMax
	}
	e.Timers.Set(&x.timer, e.Now.Add(timeout), copyRef(h))
	e.Work.SpendRows(len(originals))
	a := e.ForArena()
	o.copies.pairs = x.copies.Begin(&a, originals, len(originals), copyRef(h), o.copies.pairs)
}

// redirectCopyReply records that a peer repeats an operation while the chunks are being copied. Only the latest attempt
// receives the reply.
func (o *Owner) redirectCopyReply(e *flow.Env, ev *effects.Received, h table.Handle) {
	e.Out.Mark(Marks.CopyAgain)
	x := o.copies.rows.Get(h)
	x.request, x.clockEcho = ev.Request, o.getMessage.Ext.Stamps.ClockNS
}

// onCopyDone handles the end of the copy of a chunk. If the copy failed, the chunk and all chunks behind it are
// misses.
func (o *Owner) onCopyDone(e *flow.Env, ref kernel.Ref, code effects.Code, settled bool) {
	x, index := o.copies.rows.Get(ref.Subject), int(ref.Attempt)
	a := e.ForArena()
	if settled {
		x.copies.OnSettled(&a, o.loans.HeldPages(x.loan), index)
	} else {
		e.Out.Mark(Marks.CopyUnsettled)
	}
	if code != effects.OK && index < x.intactCopies {
		if x.code == effects.OK {
			e.Out.Mark(Marks.CopyFailed)
		}
		x.intactCopies = index
		x.copies.CancelFrom(&a, index+1)
	}
	if !x.copies.HasUnsettled() {
		o.finishCopy(e, ref.Subject, x)
	}
}

// onCopySettled handles the notice that an ended copy touches no memory any more.
func (o *Owner) onCopySettled(e *flow.Env, ref kernel.Ref) {
	x := o.copies.rows.Get(ref.Subject)
	a := e.ForArena()
	x.copies.OnSettled(&a, o.loans.HeldPages(x.loan), int(ref.Attempt))
	if !x.copies.HasUnsettled() {
		o.finishCopy(e, ref.Subject, x)
	}
}

// onCopyDeadline cancels copies that take longer than the peer waits. Their pages stay reserved until the copies
// settle.
func (o *Owner) onCopyDeadline(e *flow.Env, h table.Handle) {
	e.Out.Mark(Marks.CopyLate)
	x := o.copies.rows.Get(h)
	x.timer, x.code = 0, effects.Expired
	a := e.ForArena()
	x.copies.Cancel(&a)
}

// finishCopy answers a request after all copies have settled: it lends the prefix of copied chunks, or replies why
// nothing is lent.
func (o *Owner) finishCopy(e *flow.Env, h table.Handle, x *copyRow) {
	e.Timers.Stop(&x.timer)
	peerGone := e.Links.IncarnationByClass(x.class).HasLostLink() || o.loans.IsCondemned(x.loan)
	switch {
	case x.code != effects.OK:
	case peerGone:
		x.code = effects.Stale
	case e.Draining:
		x.code = effects.Draining
	case x.intactCopies == 0:
		x.code = effects.Faulted
	case !e.Pools.HasGrantSlot():
		x.code = effects.TooMany
	}
	ev := effects.Received{Request: x.request}
	o.startReplyTo(e, x.selfID, x.clockEcho)
	if a := e.ForArena(); x.code == effects.OK {
		l := o.loans.LendCopies(&e.Env, &e.Store, x.loan, x.copies.KeepFirst(&a, x.intactCopies))
		o.addLoanToReply(e, l)
		e.Out.Observe(effects.Observe{Fact: effects.FactShared, Count: uint32(x.intactCopies), ID: l.GrantID(), Peer: x.peerID,
			Report: x.report(e)})
	} else {
		x.copies.DropTargets(&a)
		o.loans.ReleasePrefix(&e.Env, &e.Store, x.loan)
		why := flow.EndReason(x.code)
		if x.code == effects.Faulted || x.code == effects.Expired {
			*why = effects.Why{Field: "copy to the arena", Ours: x.code.String()}
		}
		o.addReason(x.code, why)
		e.Out.Observe(effects.Observe{Fact: effects.FactShared, Code: x.code, Peer: x.peerID, Report: x.report(e)})
	}
	if peerGone { // The peer cannot reach lent pages before it has completed another handshake.
		e.Out.Mark(Marks.NotIntroduced)
		o.sendError(e, &ev, protocol.P2PNotIntroduced)
	} else {
		o.sendReply(e, &ev, o.reply.Append(e.Out.Arena()))
	}
	o.pushes.share.Release(x.class)
	x.copies.TrimMemory()
	o.copies.rows.Remove(h)
}

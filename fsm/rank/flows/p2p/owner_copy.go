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

// A copying is a request for chunks that are being copied to the arena, from where they are lent. The originals are
// pinned from the arrival of the request until all copies have settled, and the only reply is sent then. Invariant:
// nothing is lent that a device may still store into (M1), and nothing that is lent keeps the store from making room.
type copying struct {
	asker  effects.Request `snap:"skip"` // the latest attempt
	echo   int64           // clock reading of that attempt
	loan   table.Handle    // the pinned originals
	class  int
	who    effects.Incarnation
	us     effects.Incarnation
	copies transfer.Copies
	// whole is the number of copies, from the first on, that have not failed.
	whole int
	// timer fires when the reply is of no use any more.
	timer kernel.TimerID `snap:"set"`
	code  effects.Code   // the reason why nothing will be lent
}

// copyings holds the copyings of an Owner. Copyings and pushes count together as requests in service.
type copyings struct {
	rows  table.Slab[copying]
	pairs []effects.CopyPair `snap:"scratch"`
}

// States of a copying, numbered after the states of pushes.
const (
	copyRunning = iota // copies are in flight
	// Nothing will be lent, and copies may still be in flight.
	copyStopping
	copyStates
)

func copyRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2POwner, Kind: kindCopy, Subject: h}
}

// mayServe returns an error if a request of a peer must not be taken into service. No peer has more requests in
// service than it leaves for the remaining peers.
func (o *Owner) mayServe(e *flow.Env, class int) (effects.Code, effects.Why) {
	if p := &o.pushes; p.share.All() >= int(o.cfg.PushesMax) || !p.share.May(class) || !o.loans.May(&e.Env, class) {
		e.Out.Mark(Marks.PushesFull)
		return effects.TooMany, effects.Why{
			Field: "p2p_max_concurrent_gets", Ours: flow.Number(o.cfg.PushesMax) + ", and this peer has its share in progress",
			Remedy: "ask again later, or raise it there",
		}
	}
	return effects.OK, effects.Why{}
}

// beginCopy begins to copy the chunks that were found for a peer, as many as the peer's share of the arena permits.
func (o *Owner) beginCopy(e *flow.Env, ev *effects.Received, to loan.For) {
	if code, why := o.mayServe(e, to.Class); code != effects.OK {
		o.refuse(e, ev, code, why)
		return
	}
	if o.loans.Fits(&e.Env, to.Class) == 0 {
		e.Out.Mark(Marks.ArenaFull)
		o.refuse(e, ev, effects.TooMany, effects.Why{
			Field: "os_staging_bytes", Ours: flow.Number(e.Arena.Total()) + " pages, and this peer has its share of them",
			Remedy: "ask again later, or raise it there",
		})
		return
	}
	m := &o.get
	h, x := o.copyings.rows.Add()
	to.Row = h
	kept, from := o.loans.KeepToCopy(&e.Env, &e.Store, to)
	*x = copying{
		asker: ev.Request, echo: m.Ext.Stamps.ClockNS, loan: kept, class: to.Class, who: to.To.Who, us: to.To.Us,
		copies: x.copies.Reuse(), whole: len(from),
	}
	o.pushes.share.Take(to.Class)
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.ReadLeaseMax)))
	if patience == 0 {
		patience = e.Cfg.ReadLeaseMax
	}
	e.Timers.Set(&x.timer, e.Now.Add(patience), copyRef(h))
	e.Work.Spend(len(from))
	a := e.OfArena()
	o.copyings.pairs = x.copies.Begin(&a, from, len(from), copyRef(h), o.copyings.pairs)
}

// copyAgain records that a peer repeats an operation while the chunks are being copied. Only the latest attempt
// receives the reply.
func (o *Owner) copyAgain(e *flow.Env, ev *effects.Received, h table.Handle) {
	e.Out.Mark(Marks.CopyAgain)
	x := o.copyings.rows.Get(h)
	x.asker, x.echo = ev.Request, o.get.Ext.Stamps.ClockNS
}

// copyEnded handles the end of the copy of a chunk. If the copy failed, the chunk and all chunks behind it are
// misses.
func (o *Owner) copyEnded(e *flow.Env, ref kernel.Ref, code effects.Code, settled bool) {
	x, part := o.copyings.rows.Get(ref.Subject), int(ref.Attempt)
	a := e.OfArena()
	if settled {
		x.copies.Settled(&a, o.loans.Kept(x.loan), part)
	} else {
		e.Out.Mark(Marks.CopyUnsettled)
	}
	if code != effects.OK && part < x.whole {
		if x.code == effects.OK {
			e.Out.Mark(Marks.CopyFailed)
		}
		x.whole = part
		x.copies.CancelFrom(&a, part+1)
	}
	if !x.copies.Touch() {
		o.finishCopy(e, ref.Subject, x)
	}
}

// copySettled handles the notice that an ended copy touches no memory any more.
func (o *Owner) copySettled(e *flow.Env, ref kernel.Ref) {
	x := o.copyings.rows.Get(ref.Subject)
	a := e.OfArena()
	x.copies.Settled(&a, o.loans.Kept(x.loan), int(ref.Attempt))
	if !x.copies.Touch() {
		o.finishCopy(e, ref.Subject, x)
	}
}

// copyLate cancels copies that take longer than the peer waits. Their pages stay reserved until the copies settle.
func (o *Owner) copyLate(e *flow.Env, h table.Handle) {
	e.Out.Mark(Marks.CopyLate)
	x := o.copyings.rows.Get(h)
	x.timer, x.code = 0, effects.Expired
	a := e.OfArena()
	x.copies.Cancel(&a)
}

// finishCopy answers a request after all copies have settled: it lends the prefix of copied chunks, or replies why
// nothing is lent.
func (o *Owner) finishCopy(e *flow.Env, h table.Handle, x *copying) {
	e.Timers.Stop(&x.timer)
	gone := e.Links.OfClass(x.class).Gone() || o.loans.Lost(x.loan)
	switch {
	case x.code != effects.OK:
	case gone:
		x.code = effects.Stale
	case e.Draining:
		x.code = effects.Draining
	case x.whole == 0:
		x.code = effects.Faulted
	case !e.Pools.CanLend():
		x.code = effects.TooMany
	}
	ev := effects.Received{Request: x.asker}
	o.begin(e, x.us, x.echo)
	if a := e.OfArena(); x.code == effects.OK {
		l := o.loans.LendCopies(&e.Env, &e.Store, x.loan, x.copies.Keep(&a, x.whole))
		o.tell(e, l)
		e.Out.Observe(effects.Observe{Fact: effects.FactShared, Count: uint32(x.whole), ID: l.Grant(), Peer: x.who})
	} else {
		x.copies.Drop(&a)
		o.loans.Release(&e.Env, &e.Store, x.loan)
		why := flow.WhyEnded(x.code)
		if x.code == effects.Faulted || x.code == effects.Expired {
			*why = effects.Why{Field: "copy to the arena", Ours: x.code.String()}
		}
		o.excuse(x.code, why)
		e.Out.Observe(effects.Observe{Fact: effects.FactShared, Code: x.code, Peer: x.who})
	}
	if gone { // The peer cannot reach lent pages before it has completed another handshake.
		e.Out.Mark(Marks.NotIntroduced)
		o.fail(e, &ev, protocol.P2PNotIntroduced)
	} else {
		o.say(e, &ev, o.reply.Append(e.Out.Arena()))
	}
	o.pushes.share.Give(x.class)
	x.copies.Shed()
	o.copyings.rows.Remove(h)
}

package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A landing that reads has a write grant of its own on the pages that are read into. No plane is notified of this
// grant. No other writer may store into the pages, and the pages count against the sender's share as pages of a
// push do (M1). When the read has ended well, all pages land at once, the offer is answered, and the sender is
// notified.
//
// A read that ended later than its lease, by this rank's clock, is not believed: on a leased plane the sender's
// pages may have been reused by then. On fenced planes the plane itself compares generations.

// A readRow records the offer that a landing reads.
type readRow struct {
	live           bool `snap:"life"`
	peerID         effects.Incarnation
	pullID         protocol.PullID
	readGrant      uint64          // the sender's read grant
	request        effects.Request // the request to answer; zero after the reply
	presentIndexes []int64         // the indexes of chunks that were here before
	echo           replyEcho
	doneAddress    table.Handle // the address for the done message
	link           effects.Link
	transfer       effects.Corr `snap:"skip"` // the transfer that reads
	stopCode       effects.Code // the reason why the read was given up
	replayEnd      effects.Time // the time from which on the offer is not read if it arrives again
}

// readOf returns the reading of a landing. Both are stored at the slot of the grant.
func (t *Target) readOf(x *landing.Landing) *readRow { return &t.reads[memory.SlotOf(x.ID)] }

// newRead returns the reading for a landing, and extends the table if necessary.
func (t *Target) newRead(x *landing.Landing) *readRow {
	for int(memory.SlotOf(x.ID)) >= len(t.reads) {
		t.reads = append(t.reads, readRow{})
	}
	return t.readOf(x)
}

// startRead serves t.offer if all new chunks fit; otherwise nothing is read (M9). The bool result reports whether the
// offer has been answered or the read has begun; if not, the Shortfall says what the offer is short of.
func (t *Target) startRead(
	e *flow.Env, peerLink effects.Link, from flow.Sender,
) (allocqueue.Shortfall, bool) {
	m, class, request := &t.offer, from.Class, from.Request
	if !e.Landings.HasRoom(&e.Env, &e.Store, len(m.Keys)) {
		return allocqueue.Shortfall{}, false
	}
	right, known := t.offerRight(e, class)
	notAfter, late := e.Now.Add(t.cfg.ReadTimeout), allocqueue.MaxTime
	if e.Cfg.Leased {
		notAfter, late = min(notAfter, right.Until), right.Until
		if !known || e.Now > notAfter {
			e.Out.Mark(flow.Marks.OfferTooLate)
			t.refuseOffer(e, from, effects.Expired, flow.TooLateReason())
			return allocqueue.Shortfall{}, true
		}
	}
	p := e.Landings.PlanKeys(&e.Env, &e.Store, class, m.Keys, m.Ext.Sums, m.LastChunkTokens, true)
	fresh := p.PagesNeeded()
	if !p.FitsPool(&e.Env, &e.Store, e.Pool, class) {
		p.EndFills(&e.Env, &e.Store)
		return e.ShortfallOf(p, late), false
	}
	requestHash := e.Store.HashRequest(m.Ext.Request)
	t.presentIndexes = p.ClaimReady(&e.Env, &e.Store, class, requestHash, t.presentIndexes[:0])
	if fresh == 0 {
		t.addDoneRecord(e, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, right.ExpiresAt)
		t.sendAck(e, request, t.offerEcho(), t.presentIndexes, false)
		return allocqueue.Shortfall{}, true
	}
	peerID := effects.Incarnation(m.Ext.Incarnation)
	x, pages := e.Landings.BeginGrant(&e.Env, p, e.Pool, landing.Purpose{
		Owner: kernel.OwnerPullTarget, Class: class, Peer: peerID, Operation: m.Ext.Operation, Request: requestHash,
		ContentHash: p.ContentHash(m.LastChunkTokens), CommitBy: right.Until, Expires: notAfter,
		Trace: effects.TraceFromWire(m.Ext.Trace), ArrivedAt: t.arrivedAt,
	})
	y := t.newRead(x)
	*y = readRow{
		live: true, peerID: peerID, pullID: m.PullID, readGrant: m.Ext.Grant, request: request,
		presentIndexes: append(y.presentIndexes[:0], t.presentIndexes...), echo: t.offerEcho(),
		doneAddress: t.notices.ReserveAddress(&e.Env, class, m.SenderDoneURL), link: peerLink, replayEnd: right.ExpiresAt,
		transfer: e.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPullTarget, Subject: x.Handle()}),
	}
	t.pairs = t.pairs[:0]
	for i := range p.Keys {
		if at := &p.Keys[i]; at.NeedsPage() {
			t.pairs = append(t.pairs, effects.Pair{Local: pages[at.Page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
				Sum: effects.SumAt(m.Ext.Sums, i), Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	e.Out.Publish(pages)
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peerID})
	e.Out.Transfer(effects.Transfer{
		Corr: y.transfer, Link: peerLink, Peer: peerID, Grant: effects.GrantID(m.Ext.Grant), Read: true, Pairs: t.pairs,
		Since: right.Since, NotAfter: notAfter,
	})
	return allocqueue.Shortfall{}, true
}

// cancelRead gives up a read: what the read has brought when it ends is discarded.
func (t *Target) cancelRead(e *flow.Env, x *landing.Landing, code effects.Code) {
	y := t.readOf(x)
	if x.Revoking || y.stopCode != effects.OK {
		return
	}
	e.Landings.StopDeadline(&e.Env, x)
	y.stopCode = code
	e.Out.Cancel(y.transfer)
}

// onTransferDone handles the end of a read.
func (t *Target) onTransferDone(e *flow.Env, ref kernel.Ref, ev *effects.TransferDone) {
	x := e.Landings.At(ref.Subject.Slot())
	y := t.readOf(x)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		e.Links.DropInboundLink(&e.Env, y.link)
	case code == effects.OK && y.stopCode == effects.OK && e.Cfg.Leased && ev.At > x.CommitBy:
		e.Out.Mark(flow.Marks.ReadLate)
		code = effects.Expired
	}
	if y.stopCode != effects.OK {
		code = y.stopCode
	}
	if !ev.Settled {
		// Something may still store into this rank's pages. The reply need not wait for that, but the pages must
		// wait, in quarantine (M1).
		e.Out.Mark(flow.Marks.ReadUnsettled)
		y.stopCode = code
		e.Landings.QuarantinePages(&e.Env, x)
		t.sendReadReply(e, y, code, true)
		return
	}
	if code == effects.OK {
		e.Landings.LandAll(&e.Env, &e.Store, x, e.IsLandingWanted(x))
	}
	t.finishRead(e, x, code)
}

// onSettled handles the notification, after an unsettled read, that nothing stores into this rank's pages any more.
func (t *Target) onSettled(e *flow.Env, ref kernel.Ref) {
	x := e.Landings.At(ref.Subject.Slot())
	t.finishRead(e, x, t.readOf(x).stopCode)
}

// finishRead removes a read that has nothing in flight, and notifies the sender. Invariant: the sender is not
// notified earlier, because the done message gives the pages back to the sender (M2).
func (t *Target) finishRead(e *flow.Env, x *landing.Landing, code effects.Code) {
	y := t.readOf(x)
	missing := e.Pools.CountOpenPages(x.ID)
	t.sendReadReply(e, y, code, false)
	t.addDoneRecord(e, x.Class, x.Peer, x.Operation, code, y.replayEnd)
	t.queueDone(e, y.doneAddress, x.Class, deferred.DoneReport{
		Pull: y.pullID, SelfID: y.echo.selfID, PeerID: x.Peer, Grant: y.readGrant, Code: code, Missing: missing,
	})
	y.live = false
	e.Landings.EndGrant(&e.Env, &e.Store, x)
}

func (t *Target) sendReadReply(e *flow.Env, y *readRow, code effects.Code, stillReading bool) {
	if y.request == 0 {
		return
	}
	if code == effects.OK {
		t.sendAck(e, y.request, y.echo, y.presentIndexes, false)
	} else {
		e.Out.Mark(flow.Marks.ReadFailed)
		t.sendRefusal(e, y.request, true, y.echo, code, flow.EndReason(code), stillReading)
	}
	y.request = 0
}

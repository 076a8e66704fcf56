package p2p

import (
	"encoding/binary"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/table"
)

// A pushRow is a request for chunks that this node writes into pages of the requester. The chunks are pinned from the
// arrival of the request until the write has settled, and the only reply is sent then. Invariant: the reply says that
// nothing of this node writes any more (M4).
type pushRow struct {
	requestTrace
	request        effects.Request `snap:"skip"` // the latest attempt
	clockEcho      int64           // clock reading of that attempt
	loan           table.Handle    // the pinned chunks
	class          int
	peerID, selfID effects.Incarnation
	operation      uint64
	// writeGrant is the requester's grant of its pages.
	writeGrant effects.GrantID
	pairs      []effects.Pair
	hits       uint32
	sums       []uint64 // checksums of the chunks, one for each hit, for the reply; empty: none is known
	// grantedAfter is the earliest instant at which the pages may have been granted.
	grantedAfter effects.Time `snap:"skip"`
	// writeUntil is the instant at which writing must have stopped. Invariant: it is not later than the end of the
	// requester's grant less LeaseGuard (M4).
	writeUntil effects.Time
	// replayEnd is the instant from which on a repetition of the request is too late by itself.
	replayEnd effects.Time
	timer     kernel.TimerID `snap:"set"`
	phase     pushPhase
	link      effects.Link
	transfer  transfer.Transfer
	code      effects.Code // the result
}

// A pushPhase is the state of a push.
type pushPhase uint8

const (
	pushLinking pushPhase = iota // waits for the link to the requester's pages
	// The attempt to make the link has ended, and the push waits for its turn.
	pushLinkTried
	pushWriting // the write is in flight
	// The write has ended, but something may still write.
	pushSettling
	pushPhaseCount
)

// pushTable holds the pushes of an Owner.
type pushTable struct {
	rows table.Slab[pushRow]
	// share counts the requests in service (pushes and copyings) by class.
	share          table.Share
	waitingByClass []table.List // by class: pushes that wait for the link
	ready          table.List   // pushes with an ended attempt to make the link
	// replays contains the replay records of ended pushes. Invariant: an ended push never starts again (M2).
	replays replies.Records
	// byPage finds pairs by their destination while the pairs of a push are made.
	byPage table.Index
}

func (p *pushTable) recycle(limit, replaysMax uint32, classes int) pushTable {
	return pushTable{
		rows: p.rows.Recycle(int(limit)), share: p.share.Recycle(int(limit), classes),
		waitingByClass: table.RecycleSlice(p.waitingByClass, classes),
		replays:        p.replays.Recycle(int(replaysMax), classes), byPage: p.byPage.Recycle(),
	}
}

func pushRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2POwner, Kind: kindPush, Subject: h}
}

// startPush handles a request that grants pages of the requester: it starts the write, or replies with a refusal.
func (o *Owner) startPush(e *flow.Env, ev *effects.Received, request loan.Request) {
	m := &o.getMessage
	over := e.Now.Add(e.StatedLease(m.Ext.LeaseNS))
	if code, why := o.checkPush(e, request.Class); code != effects.OK {
		o.addReplayRecord(e, request.Class, request.Reader.PeerID, m.Ext.Operation, code, over)
		o.refuseGet(e, ev, code, why)
		return
	}
	x := pushRow{
		requestTrace: o.traceOfRequest(e),
		request:      ev.Request, clockEcho: m.Ext.Stamps.ClockNS, class: request.Class, peerID: request.Reader.PeerID,
		selfID:    request.Reader.SelfID,
		operation: m.Ext.Operation, writeGrant: effects.GrantID(m.Ext.Grant), replayEnd: over,
	}
	var anchored bool
	x.grantedAfter, anchored = e.Links.ConvertInstant(&e.Env, request.Class, m.Ext.Stamps, m.Ext.GrantedNS)
	x.writeUntil = e.Now.Add(effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.ReadLeaseMax))))
	if anchored {
		x.writeUntil = min(x.writeUntil, e.AccessEnd(x.grantedAfter, e.StatedLease(m.Ext.LeaseNS)))
	}
	if e.Now >= x.writeUntil || e.Cfg.Leased && (!anchored || x.grantedAfter <= o.pushes.replays.Watermark(request.Class)) {
		e.Out.Mark(Marks.PushTooLate)
		o.addReplayRecord(e, request.Class, x.peerID, x.operation, effects.Expired, over)
		o.refuseGet(e, ev, effects.Expired, *flow.TooLateReason())
		return
	}
	o.startReply(e)
	if o.loans.FindPrefix(&e.Env, &e.Store, request.Class, m.Keys) == 0 {
		o.addReplayRecord(e, request.Class, x.peerID, x.operation, effects.NotFound, over)
		o.sendReply(e, ev, o.reply.Append(e.Out.Arena()))
		return
	}
	h, row := o.pushes.rows.Add()
	x.pairs, x.sums, request.Row = row.pairs[:0], row.sums[:0], h
	var pages []effects.Page
	x.loan, pages = o.loans.HoldPrefix(&e.Env, &e.Store, request)
	x.hits = uint32(len(pages))
	x.pairs = o.pairPages(e, x.pairs, pages)
	for i, page := range pages {
		x.sums = effects.AppendSum(x.sums, i, page.Sum)
	}
	*row = x
	o.pushes.share.Acquire(x.class)
	if over := e.Links.ReachPeer(&e.Env, x.class); over != 0 {
		o.startWrite(e, h, row, over)
		return
	}
	o.pushes.rows.PushBack(&o.pushes.waitingByClass[x.class], h)
	e.Timers.Set(&row.timer, row.writeUntil, pushRef(h))
}

// checkPush returns an error if a request cannot be answered by a push.
func (o *Owner) checkPush(e *flow.Env, class int) (effects.Code, effects.Why) {
	m := &o.getMessage
	if len(m.BufferUUIDs) != len(m.Keys) || len(m.Ext.Generations) != len(m.Keys) || m.Ext.Grant == 0 {
		return effects.Invalid, effects.Why{
			Field: "AscendBatchedLookupAndGetMsg", Ours: "kvf_grant, and a page and a generation for each key",
			Theirs: "one is missing",
		}
	}
	for i, index := range m.MemIndexes {
		buffer, ok := e.Links.IncarnationByClass(class).FindBuffer(effects.BufferID(m.BufferUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, effects.Why{
				Field: flow.EntryName("mem_indexes", i), Ours: "a page of a buffer that it listed", Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	return o.checkService(e, class)
}

// pairPages returns the pairs of source and destination pages. A destination that is named twice is written once: it
// belongs to a key that was requested twice.
func (o *Owner) pairPages(e *flow.Env, pairs []effects.Pair, pages []effects.Page) []effects.Pair {
	m, byPage := &o.getMessage, &o.pushes.byPage
	for i, page := range pages {
		x := effects.Pair{Local: page, Remote: effects.RemotePage{
			Buffer: effects.BufferID(m.BufferUUIDs[i]), Index: uint32(m.MemIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		}}
		hash, repeated := hashPage(e, &x.Remote), false
		for q := byPage.Find(hash); q.Found(); q = byPage.Next(q) {
			repeated = repeated || pairs[q.Handle().Slot()].Remote == x.Remote
		}
		if !repeated {
			pairs = append(pairs, x)
			byPage.Add(hash, table.Handle(len(pairs)))
		}
	}
	// The removal takes time in proportion to this batch, however large an earlier batch was.
	for i := range pairs {
		byPage.Remove(hashPage(e, &pairs[i].Remote), table.Handle(i+1))
	}
	return pairs
}

// hashPage returns a hash of a page. The hash depends on a secret of the store, so that a peer cannot choose pages
// that collide.
func hashPage(e *flow.Env, r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return e.Store.HashKey(b[:])
}

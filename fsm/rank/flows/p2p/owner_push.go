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

// A push is one question whose chunks we write into pages of who asked. What it is of is pinned from the step in which
// it came until the write has settled, and its one answer goes out then: so the answer says that nothing writes any
// more.
type push struct {
	asker     effects.Request `snap:"skip"` // of the attempt that came last
	echo      int64           // its clock, as that says
	loan      table.Handle    // what is pinned
	class     int
	who, us   effects.Incarnation
	operation uint64
	grant     effects.GrantID // over its pages
	pairs     []effects.Pair
	hits      uint32
	since     effects.Time   `snap:"skip"` // when they were granted, at the earliest
	until     effects.Time   // until when we may write
	over      effects.Time   // from when on the question, if it comes again, is too late by itself
	timer     kernel.TimerID `snap:"set"`
	phase     pushPhase
	link      effects.Link
	write     transfer.Transfer
	code      effects.Code // what became of it
}

type pushPhase uint8

const (
	pushLinking  pushPhase = iota // to where its pages are
	pushUnlinked                  // that has failed, or is there, and it is its turn soon
	pushWriting
	pushSettling // it ended, but something may still write
	pushPhases
)

// pushes are those of an Owner.
type pushes struct {
	rows   table.Slab[push]
	share  table.Share   // of those in progress, and of what is being copied, by class
	waits  []table.List  // by class: for its link
	ready  table.List    // whose link was made, or cannot be
	said   replies.Words // of those that are over: none begins anew
	byPage table.Index   // finds pairs by where they go, while they are made
}

func (p *pushes) emptied(most, words uint32, classes int) pushes {
	return pushes{
		rows: p.rows.Emptied(int(most)), share: p.share.Emptied(int(most), classes), waits: table.Zeroed(p.waits, classes),
		said: p.said.Emptied(int(words), classes), byPage: p.byPage.Emptied(),
	}
}

func pushRef(h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerP2POwner, Kind: kindPush, Subject: h}
}

// onPush answers a peer that has granted us pages, or begins to write into them.
func (o *Owner) onPush(e *flow.Env, ev *effects.Received, to loan.For) {
	m := &o.get
	over := e.Now.Add(e.Stated(m.Ext.LeaseNS))
	if code, why := o.mayPush(e, to.Class); code != effects.OK {
		o.bury(e, to.Class, to.To.Who, m.Ext.Operation, code, over)
		o.refuse(e, ev, code, why)
		return
	}
	x := push{
		asker: ev.Request, echo: m.Ext.Stamps.ClockNS, class: to.Class, who: to.To.Who, us: to.To.Us,
		operation: m.Ext.Operation, grant: effects.GrantID(m.Ext.Grant), over: over,
	}
	var known bool
	x.since, known = e.Links.Anchor(&e.Env, to.Class, m.Ext.Stamps, m.Ext.GrantedNS)
	x.until = e.Now.Add(effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.LeaseMax))))
	if known {
		x.until = min(x.until, x.since.Add(e.Stated(m.Ext.LeaseNS)-e.Cfg.LeaseGuard))
	}
	if e.Now >= x.until || e.Cfg.Leased && (!known || x.since <= o.pushes.said.Watermark(to.Class)) {
		e.Out.Mark(Marks.PushTooLate)
		o.bury(e, to.Class, x.who, x.operation, effects.Expired, over)
		o.refuse(e, ev, effects.Expired, *flow.TooLate())
		return
	}
	o.empty(e)
	if o.loans.Prefix(&e.Env, &e.Store, to.Class, m.Keys) == 0 {
		o.bury(e, to.Class, x.who, x.operation, effects.NotFound, over)
		o.say(e, ev, o.reply.Append(e.Out.Arena()))
		return
	}
	h, row := o.pushes.rows.Add()
	x.pairs, to.Row = row.pairs[:0], h
	var pages []effects.Page
	x.loan, pages = o.loans.Keep(&e.Env, &e.Store, to)
	x.hits = uint32(len(pages))
	x.pairs = o.pair(e, x.pairs, pages)
	*row = x
	o.pushes.share.Take(x.class)
	if over := e.Links.Reach(&e.Env, x.class); over != 0 {
		o.write(e, h, row, over)
		return
	}
	o.pushes.rows.PushBack(&o.pushes.waits[x.class], h)
	e.Timers.Set(&row.timer, row.until, pushRef(h))
}

// mayPush says whether a question can be answered by a push.
func (o *Owner) mayPush(e *flow.Env, class int) (effects.Code, effects.Why) {
	m := &o.get
	if len(m.BufferUUIDs) != len(m.Keys) || len(m.Ext.Generations) != len(m.Keys) || m.Ext.Grant == 0 {
		return effects.Invalid, effects.Why{
			Field: "AscendBatchedLookupAndGetMsg", Ours: "kvf_grant, and a page and a generation for each key",
			Theirs: "one is missing",
		}
	}
	for i, index := range m.MemIndexes {
		buffer, ok := e.Links.OfClass(class).Buffer(effects.BufferID(m.BufferUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, effects.Why{
				Field: flow.At("mem_indexes", i), Ours: "a page of a buffer that it listed", Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	return o.mayServe(e, class)
}

// pair says where each page is to go. One that is named twice is written once: it is of a key that was asked for twice.
func (o *Owner) pair(e *flow.Env, pairs []effects.Pair, pages []effects.Page) []effects.Pair {
	m, by := &o.get, &o.pushes.byPage
	for i, page := range pages {
		x := effects.Pair{Local: page, Remote: effects.RemotePage{
			Buffer: effects.BufferID(m.BufferUUIDs[i]), Index: uint32(m.MemIndexes[i]),
			Generation: effects.Generation(m.Ext.Generations[i]),
		}}
		hash, again := placeHash(e, &x.Remote), false
		for q := by.Seek(hash); q.Found(); q = by.Next(q) {
			again = again || pairs[q.Handle().Slot()].Remote == x.Remote
		}
		if !again {
			pairs = append(pairs, x)
			by.Add(hash, table.Handle(len(pairs)))
		}
	}
	for i := range pairs { // In time that depends on the batch alone, however large an earlier one was.
		by.Remove(placeHash(e, &pairs[i].Remote), table.Handle(i+1))
	}
	return pairs
}

// placeHash depends on a secret of the store's: a peer cannot choose pages that collide.
func placeHash(e *flow.Env, r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return e.Store.Hash(b[:])
}

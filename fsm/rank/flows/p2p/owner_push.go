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

// A push is a request for chunks that this node writes into pages of the requester. The chunks are pinned from the
// arrival of the request until the write has settled, and the only reply is sent then. Invariant: the reply says that
// nothing of this node writes any more (M4).
type push struct {
	asker     effects.Request `snap:"skip"` // the latest attempt
	echo      int64           // clock reading of that attempt
	loan      table.Handle    // the pinned chunks
	class     int
	who, us   effects.Incarnation
	operation uint64
	// grant is the requester's grant of its pages.
	grant effects.GrantID
	pairs []effects.Pair
	hits  uint32
	// since is the earliest instant at which the pages may have been granted.
	since effects.Time `snap:"skip"`
	// until is the instant at which writing must have stopped. Invariant: it is not later than the end of the
	// requester's grant less LeaseGuard (M4).
	until effects.Time
	// over is the instant from which on a repetition of the request is too late by itself.
	over  effects.Time
	timer kernel.TimerID `snap:"set"`
	phase pushPhase
	link  effects.Link
	write transfer.Transfer
	code  effects.Code // the result
}

// A pushPhase is the state of a push.
type pushPhase uint8

const (
	pushLinking pushPhase = iota // waits for the link to the requester's pages
	// The attempt to make the link has ended, and the push waits for its turn.
	pushUnlinked
	pushWriting // the write is in flight
	// The write has ended, but something may still write.
	pushSettling
	pushPhases
)

// pushes holds the pushes of an Owner.
type pushes struct {
	rows table.Slab[push]
	// share counts the requests in service (pushes and copyings) by class.
	share table.Share
	waits []table.List // by class: pushes that wait for the link
	ready table.List   // pushes with an ended attempt to make the link
	// said contains the replay records of ended pushes. Invariant: an ended push never starts again (M2).
	said replies.Words
	// byPage finds pairs by their destination while the pairs of a push are made.
	byPage table.Index
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

// onPush handles a request that grants pages of the requester: it starts the write, or replies with a refusal.
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
	x.until = e.Now.Add(effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.ReadLeaseMax))))
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

// mayPush returns an error if a request cannot be answered by a push.
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

// pair returns the pairs of source and destination pages. A destination that is named twice is written once: it
// belongs to a key that was requested twice.
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
	// The removal takes time in proportion to this batch, however large an earlier batch was.
	for i := range pairs {
		by.Remove(placeHash(e, &pairs[i].Remote), table.Handle(i+1))
	}
	return pairs
}

// placeHash returns a hash of a page. The hash depends on a secret of the store, so that a peer cannot choose pages
// that collide.
func placeHash(e *flow.Env, r *effects.RemotePage) uint64 {
	var b [28]byte
	copy(b[:], r.Buffer[:])
	binary.LittleEndian.PutUint32(b[16:], r.Index)
	binary.LittleEndian.PutUint64(b[20:], uint64(r.Generation))
	return e.Store.Hash(b[:])
}

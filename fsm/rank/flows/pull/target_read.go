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

// A reading records the offer that a landing reads.
type reading struct {
	live     bool `snap:"life"`
	peer     effects.Incarnation
	id       protocol.PullID
	grant    uint64          // the sender's read grant
	to       effects.Request // the request to answer; zero after the reply
	already  []int64         // the indexes of chunks that were here before
	heard    heard
	done     table.Handle // the address for the done message
	link     effects.Link
	transfer effects.Corr `snap:"skip"` // the transfer that reads
	stop     effects.Code // the reason why the read was given up
	over     effects.Time // the time from which on the offer is not read if it arrives again
}

// readingOf returns the reading of a landing. Both are stored at the slot of the grant.
func (t *Target) readingOf(x *landing.Landing) *reading { return &t.reads[memory.SlotOf(x.ID)] }

// newReading returns the reading for a landing, and extends the table if necessary.
func (t *Target) newReading(x *landing.Landing) *reading {
	for int(memory.SlotOf(x.ID)) >= len(t.reads) {
		t.reads = append(t.reads, reading{})
	}
	return t.readingOf(x)
}

// read serves t.offer if all new chunks fit; otherwise nothing is read (M9). The boolean reports whether the
// offer has been answered or the read has begun; if not, the Shortfall says what the offer is short of.
func (t *Target) read(
	e *flow.Env, to effects.Link, asks flow.Asker,
) (allocqueue.Shortfall, bool) {
	m, class, request := &t.offer, asks.Class, asks.To
	if !e.Landings.Room(&e.Env, &e.Store, len(m.Keys)) {
		return allocqueue.Shortfall{}, false
	}
	may, known := t.rightOf(e, class)
	notAfter, late := e.Now.Add(t.cfg.ReadTimeout), allocqueue.Endless
	if e.Cfg.Leased {
		notAfter, late = min(notAfter, may.Until), may.Until
		if !known || e.Now > notAfter {
			e.Out.Mark(flow.Marks.OfferTooLate)
			t.refuseOffer(e, asks, effects.Expired, flow.TooLate())
			return allocqueue.Shortfall{}, true
		}
	}
	p := e.Landings.Plan(&e.Store, class, m.Keys, m.LastChunkTokens, true)
	fresh := p.Fresh()
	if !p.Fits(&e.Env, &e.Store, e.Pool, class) {
		p.Unplan(&e.Env, &e.Store)
		return e.Short(p, late), false
	}
	who := e.Store.RequestHash(m.Ext.Request)
	t.already = p.ClaimReady(&e.Env, &e.Store, class, who, t.already[:0])
	if fresh == 0 {
		t.rememberDone(e, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.Over)
		t.acknowledge(e, request, t.heard(), t.already, false)
		return allocqueue.Shortfall{}, true
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	x, pages := e.Landings.Begin(&e.Env, p, e.Pool, landing.For{
		Owner: kernel.OwnerPullTarget, Class: class, Peer: peer, Operation: m.Ext.Operation, Request: who,
		What: p.What(m.LastChunkTokens), Ends: may.Until, Over: notAfter,
	})
	y := t.newReading(x)
	*y = reading{
		live: true, peer: peer, id: m.PullID, grant: m.Ext.Grant, to: request,
		already: append(y.already[:0], t.already...), heard: t.heard(),
		done: t.notices.Promise(&e.Env, class, m.SenderDoneURL), link: to, over: may.Over,
		transfer: e.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPullTarget, Subject: x.Handle()}),
	}
	t.pairs = t.pairs[:0]
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			t.pairs = append(t.pairs, effects.Pair{Local: pages[at.Page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]),
				Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	e.Out.Publish(pages)
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peer})
	e.Out.Transfer(effects.Transfer{
		Corr: y.transfer, Link: to, Peer: peer, Grant: effects.GrantID(m.Ext.Grant), Read: true, Pairs: t.pairs,
		Since: may.Since, NotAfter: notAfter,
	})
	return allocqueue.Shortfall{}, true
}

// stopReading gives up a read: what the read has brought when it ends is discarded.
func (t *Target) stopReading(e *flow.Env, x *landing.Landing, code effects.Code) {
	y := t.readingOf(x)
	if x.Revoking || y.stop != effects.OK {
		return
	}
	e.Landings.Undated(&e.Env, x)
	y.stop = code
	e.Out.Cancel(y.transfer)
}

// transferDone handles the end of a read.
func (t *Target) transferDone(e *flow.Env, ref kernel.Ref, ev *effects.TransferDone) {
	x := e.Landings.At(ref.Subject.Slot())
	y := t.readingOf(x)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		e.Links.Unreach(&e.Env, y.link)
	case code == effects.OK && y.stop == effects.OK && e.Cfg.Leased && ev.At > x.Ends:
		e.Out.Mark(flow.Marks.ReadLate)
		code = effects.Expired
	}
	if y.stop != effects.OK {
		code = y.stop
	}
	if !ev.Settled {
		// Something may still store into this rank's pages. The reply need not wait for that, but the pages must
		// wait, in quarantine (M1).
		e.Out.Mark(flow.Marks.ReadUnsettled)
		y.stop = code
		e.Landings.Quarantine(&e.Env, x)
		t.answerRead(e, y, code, true)
		return
	}
	if code == effects.OK {
		e.Landings.LandAll(&e.Env, &e.Store, x, e.Wanted(x))
	}
	t.endRead(e, x, code)
}

// settled handles the notification, after an unsettled read, that nothing stores into this rank's pages any more.
func (t *Target) settled(e *flow.Env, ref kernel.Ref) {
	x := e.Landings.At(ref.Subject.Slot())
	t.endRead(e, x, t.readingOf(x).stop)
}

// endRead removes a read that has nothing in flight, and notifies the sender. Invariant: the sender is not
// notified earlier, because the done message gives the pages back to the sender (M2).
func (t *Target) endRead(e *flow.Env, x *landing.Landing, code effects.Code) {
	y := t.readingOf(x)
	missing := e.Pools.OpenPages(x.ID)
	t.answerRead(e, y, code, false)
	t.rememberDone(e, x.Class, x.Peer, x.Operation, code, y.over)
	t.notify(e, y.done, x.Class, deferred.Done{
		Pull: y.id, Us: y.heard.us, To: x.Peer, Grant: y.grant, Code: code, Missing: missing,
	})
	y.live = false
	e.Landings.End(&e.Env, &e.Store, x)
}

func (t *Target) answerRead(e *flow.Env, y *reading, code effects.Code, reading bool) {
	if y.to == 0 {
		return
	}
	if code == effects.OK {
		t.acknowledge(e, y.to, y.heard, y.already, false)
	} else {
		e.Out.Mark(flow.Marks.ReadFailed)
		t.fail(e, y.to, true, y.heard, code, flow.WhyEnded(code), reading)
	}
	y.to = 0
}

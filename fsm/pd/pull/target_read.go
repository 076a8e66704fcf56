package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A landing that reads has a grant of its own over its pages, of which no plane is told: nobody else may
// write them, and they count against the sender's share as if it pushed. When the read has ended well
// they land all at once, the offer is answered, and its sender is told that it was read.
//
// Nothing is believed of a read that ended later than its lease, by our clock: on planes nobody watches the
// pages may have been another's by then. On fenced planes the plane itself compares.

// A landing that reads has a grant of its own over its pages, of which no plane is told: nobody else may write them,
// and they count against the sender's share as if it pushed. When the read has ended well they land all at once, the
// offer is answered, and its sender is told that it was read.
//
// Nothing is believed of a read that ended later than its lease, by our clock: on planes nobody watches the pages may
// have been another's by then. On fenced planes the plane itself compares.

// A reading is what is known of the offer that a landing reads.
type reading struct {
	live     bool `snap:"life"`
	peer     effects.Incarnation
	id       protocol.PullID
	grant    uint64          // the sender's, of its pages
	to       effects.Request // whom to answer; zero when that was done
	already  []int64         // indexes of chunks that were here
	heard    heard
	done     table.Handle // where to tell the end
	link     effects.Link
	transfer effects.Corr `snap:"skip"` // the one that reads
	Stop     effects.Code // why we gave it up
	over     effects.Time // from when on the offer is not read if it comes again
}

// ReadingOf is what a landing reads. Both lie by the slot of the grant.
func (t *Target) ReadingOf(x *land.Landing) *reading { return &t.reads[memory.SlotOf(x.ID)] }

// newReading makes room for what a landing is to read.
func (t *Target) newReading(x *land.Landing) *reading {
	for int(memory.SlotOf(x.ID)) >= len(t.reads) {
		t.reads = append(t.reads, reading{})
	}
	return t.ReadingOf(x)
}

// read serves t.offer if its new chunks fit, all or none, and says whether it did, or what it lacks.
func (t *Target) read(
	v *env.Env, r *flow.Rooms, l *link.Links, to effects.Link, asks flow.Asker,
) (pending.Shortfall, bool) {
	m, class, request := &t.offer, asks.Class, asks.To
	if !r.Landings.Room(v, &r.Store, len(m.Keys)) {
		return pending.Shortfall{}, false
	}
	may, known := t.rightOf(v, r, l, class)
	notAfter, late := v.Now.Add(r.Cfg.ReadTimeout), pending.Endless
	if r.Cfg.Leased {
		notAfter, late = min(notAfter, may.Until), may.Until
		if !known || v.Now > notAfter {
			v.Out.Mark(flow.MarkOfferTooLate)
			t.refuseOffer(v, r, asks, effects.Expired, flow.TooLate())
			return pending.Shortfall{}, true
		}
	}
	p := r.Landings.Plan(&r.Store, class, m.Keys, m.LastChunkTokens, true)
	fresh := p.Fresh()
	if !p.Fits(v, &r.Store, class) {
		p.Unplan(v, &r.Store)
		return r.Short(p, late), false
	}
	who := r.Store.RequestHash(m.Ext.Request)
	t.already = p.ClaimReady(v, &r.Store, class, who, t.already[:0])
	if fresh == 0 {
		t.rememberDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.Over)
		t.acknowledge(v, r, request, t.heard(), t.already, false)
		return pending.Shortfall{}, true
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	x, pages := r.Landings.Begin(v, p, land.For{
		Owner: kernel.OwnerPullTarget, Class: class, Peer: peer, Operation: m.Ext.Operation, Request: who,
		What: p.What(m.LastChunkTokens), Ends: may.Until, Over: notAfter,
	})
	y := t.newReading(x)
	*y = reading{
		live: true, peer: peer, id: m.PullID, grant: m.Ext.Grant, to: request,
		already: append(y.already[:0], t.already...), heard: t.heard(),
		done: t.Notices.Promise(v, class, m.SenderDoneURL), link: to, over: may.Over,
		transfer: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerPullTarget, Subject: x.Handle()}),
	}
	t.pairs = t.pairs[:0]
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			t.pairs = append(t.pairs, effects.Pair{Local: pages[at.Page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]), Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	v.Out.Publish(pages)
	v.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peer})
	v.Out.Transfer(effects.Transfer{
		Corr: y.transfer, Link: to, Peer: peer, Grant: effects.GrantID(m.Ext.Grant), Read: true, Pairs: t.pairs,
		Since: may.Since, NotAfter: notAfter,
	})
	return pending.Shortfall{}, true
}

// StopReading gives up a read: what it has brought when it ends is not taken.
func (t *Target) StopReading(v *env.Env, r *flow.Rooms, x *land.Landing, code effects.Code) {
	y := t.ReadingOf(x)
	if x.Revoking || y.Stop != effects.OK {
		return
	}
	r.Landings.Undated(v, x)
	y.Stop = code
	v.Out.Cancel(y.transfer)
}

// TransferDone handles the end of a read.
func (t *Target) TransferDone(v *env.Env, r *flow.Rooms, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	x := r.Landings.At(ref.Subject.Slot())
	y := t.ReadingOf(x)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		l.Unreach(v, y.link)
	case code == effects.OK && y.Stop == effects.OK && r.Cfg.Leased && ev.At > x.Ends:
		v.Out.Mark(flow.MarkReadLate)
		code = effects.Expired
	}
	if y.Stop != effects.OK {
		code = y.Stop
	}
	if !ev.Settled {
		// Something may still store into our pages: the answer cannot wait for that, the pages must.
		v.Out.Mark(flow.MarkReadUnsettled)
		y.Stop = code
		r.Landings.Quarantine(v, x)
		t.answerRead(v, r, y, code, true)
		return
	}
	if code == effects.OK {
		r.Landings.LandAll(v, &r.Store, x, r.Wanted(v, x))
	}
	t.endRead(v, r, x, code)
}

// Settled handles the late word that nothing stores into our pages any more.
func (t *Target) Settled(v *env.Env, r *flow.Rooms, ref kernel.Ref) {
	x := r.Landings.At(ref.Subject.Slot())
	t.endRead(v, r, x, t.ReadingOf(x).Stop)
}

// endRead forgets a read that nothing is under way for, and tells its sender: no earlier, because its pages
// are its own again from then on.
func (t *Target) endRead(v *env.Env, r *flow.Rooms, x *land.Landing, code effects.Code) {
	y := t.ReadingOf(x)
	missing := v.Pools.OpenPages(x.ID)
	t.answerRead(v, r, y, code, false)
	t.rememberDone(v, x.Class, x.Peer, x.Operation, code, y.over)
	t.notify(v, y.done, x.Class, deferred.Done{
		Pull: y.id, Us: y.heard.us, To: x.Peer, Grant: y.grant, Code: code, Missing: missing,
	})
	y.live = false
	r.Landings.End(v, &r.Store, x)
}

func (t *Target) answerRead(v *env.Env, r *flow.Rooms, y *reading, code effects.Code, reading bool) {
	if y.to == 0 {
		return
	}
	if code == effects.OK {
		t.acknowledge(v, r, y.to, y.heard, y.already, false)
	} else {
		v.Out.Mark(flow.MarkReadFailed)
		t.fail(v, r, y.to, true, y.heard, code, flow.WhyEnded(code), reading)
	}
	y.to = 0
}

package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A batch that reads has a grant of its own over its pages, of which no plane is told: nobody else may
// write them, and they count against the sender's share as if it pushed. When the read has ended well
// they land all at once, the offer is answered, and its sender is told that it was read.
//
// Nothing is believed of a read that ended later than its lease, by our clock: on planes nobody watches the
// pages may have been another's by then. On fenced planes the plane itself compares.

// A pull is what a batch knows of the offer that it reads.
type pull struct {
	id       protocol.PullID
	grant    uint64          // the sender's, of its pages
	to       effects.Request // whom to answer; zero when that was done
	already  []int64         // indexes of chunks that were here
	heard    heard
	done     table.Handle // where to tell the end
	link     effects.Link
	transfer effects.Corr `snap:"skip"` // the one that reads
	stop     effects.Code // why we gave it up
	over     effects.Time // from when on the offer is not read if it comes again
}

func (p *pull) emptied() pull { return pull{already: p.already[:0]} }

// read serves r.offer if its new chunks fit, all or none, and says whether it did, or what it lacks.
func (r *Receiver) read(v *env.Env, l *link.Links, to effects.Link, asks asker) (shortfall, bool) {
	m, class, request := &r.offer, asks.class, asks.to
	if !r.mayBegin(v, len(m.Keys)) {
		return shortfall{}, false
	}
	since, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS)
	until := since.Add(r.stated(m.Ext.LeaseNS) - r.cfg.LeaseGuard)
	notAfter, late := v.Now.Add(r.cfg.ReadTimeout), endless
	if r.cfg.Leased {
		notAfter, late = min(notAfter, until), until
		if !known || v.Now > notAfter {
			v.Out.Mark(MarkOfferTooLate)
			r.refuseOffer(v, asks, effects.Expired, tooLate())
			return shortfall{}, true
		}
	}
	fresh := r.classify(class, m.Keys, m.LastChunkTokens, true)
	if fresh > 0 && !v.Pools.Fits(v.Pool, class, fresh) {
		r.declassify(v)
		return r.short(fresh, late), false
	}
	who := r.requestHash(m.Ext.Request)
	r.claimReady(v, class, who)
	if fresh == 0 {
		r.buryDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, r.leaseOver(v))
		r.acknowledge(v, request, r.heard(), r.already, false)
		return shortfall{}, true
	}
	peer := effects.Incarnation(m.Ext.Incarnation)
	id, pages := v.Pools.Grant(v.Pool, class, r.lengths, grantRef(kindReading))
	b := r.begin(v, id, class, peer, m.Ext.Operation, who)
	b.reading, b.ends, b.what = true, until, sum(r.hashes, m.LastChunkTokens)
	b.pull = pull{
		id: m.PullID, grant: m.Ext.Grant, to: request, already: append(b.pull.already, r.already...), heard: r.heard(),
		done: r.posts.host(v, class, m.SenderDoneURL), link: to, over: r.leaseOver(v),
		transfer: v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kindRead, Subject: slotHandle(id)}),
	}
	v.Timers.Set(&b.timer, notAfter, timerRef(timerGrant, slotHandle(id)))
	r.pairs = r.pairs[:0]
	for i := range r.spots {
		if s := &r.spots[i]; !s.ready && s.repeat < 0 {
			b.fills = append(b.fills, s.entry)
			r.pairs = append(r.pairs, effects.Pair{Local: pages[s.page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]), Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	v.Out.Publish(pages)
	v.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(id), Peer: peer})
	v.Out.Transfer(effects.Transfer{
		Corr: b.pull.transfer, Link: to, Peer: peer, Grant: effects.GrantID(m.Ext.Grant), Read: true, Pairs: r.pairs, Since: since, NotAfter: notAfter,
	})
	return shortfall{}, true
}

// stated is how long a sender says that its loan stands, and no longer than we believe anybody: less is always safe.
func (r *Receiver) stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(r.cfg.LoanMax)))
}

// claimReady claims for a request the chunks that are here already, and lists them in r.already.
func (r *Receiver) claimReady(v *env.Env, class int, request uint64) {
	r.already = r.already[:0]
	for i := range r.spots {
		if s := &r.spots[i]; s.ready {
			v.Out.Mark(MarkAlreadySent)
			r.already = append(r.already, int64(i))
			if s.repeat < 0 {
				r.claim(v, s.entry, class, request)
			}
		}
	}
}

// stopReading gives up a read: what it has brought when it ends is not taken.
func (r *Receiver) stopReading(v *env.Env, b *batch, code effects.Code) {
	if b.revoking || b.pull.stop != effects.OK {
		return
	}
	v.Timers.Stop(&b.timer)
	b.pull.stop = code
	v.Out.Cancel(b.pull.transfer)
}

// OnTransferDone handles the end of a read.
func (r *Receiver) OnTransferDone(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	b := &r.batches[ref.Subject.Slot()]
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		l.Unreach(v, b.pull.link)
	case code == effects.OK && b.pull.stop != effects.OK:
		code = b.pull.stop
	case code == effects.OK && r.cfg.Leased && ev.At > b.ends:
		v.Out.Mark(MarkReadLate)
		code = effects.Expired
	}
	if code != effects.OK && b.pull.stop != effects.OK {
		code = b.pull.stop
	}
	if !ev.Settled {
		// Something may still store into our pages: the answer cannot wait for that, the pages must.
		v.Out.Mark(MarkReadUnsettled)
		b.pull.stop, b.revoking = code, true
		v.Timers.Stop(&b.timer)
		v.Pools.Quarantine(b.id)
		r.answerRead(v, b, code, true)
		return
	}
	if code == effects.OK {
		r.pages = append(r.pages[:0], v.Pools.Pages(b.id)...)
		for _, page := range r.pages {
			r.land(v, b, page)
		}
	}
	r.endRead(v, b, code)
}

// OnSettled handles the late word that nothing stores into our pages any more.
func (r *Receiver) OnSettled(v *env.Env, ref kernel.Ref) {
	b := &r.batches[ref.Subject.Slot()]
	r.endRead(v, b, b.pull.stop)
}

// endRead forgets a read that nothing is under way for, and tells its sender: no earlier, because its pages
// are its own again from then on.
func (r *Receiver) endRead(v *env.Env, b *batch, code effects.Code) {
	missing := v.Pools.OpenPages(b.id)
	r.answerRead(v, b, code, false)
	r.buryDone(v, b.class, b.peer, b.operation, code, b.pull.over)
	r.posts.tell(v, r, b.pull.done, done{class: b.class, pull: b.pull.id, us: b.pull.heard.us, to: b.peer, grant: b.pull.grant, code: code, missing: missing})
	r.end(v, b)
}

func (r *Receiver) answerRead(v *env.Env, b *batch, code effects.Code, reading bool) {
	if b.pull.to == 0 {
		return
	}
	if code == effects.OK {
		r.acknowledge(v, b.pull.to, b.pull.heard, b.pull.already, false)
	} else {
		v.Out.Mark(MarkReadFailed)
		r.fail(v, b.pull.to, true, b.pull.heard, code, ended(code), reading)
	}
	b.pull.to = 0
}

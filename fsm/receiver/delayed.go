package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// An offered is an offer whose chunks stay with their sender until the engine fetches them: it costs no page here.
// Each of its chunks is a place of its key. A chunk leaves when the request that it was offered for has fetched it,
// well or not; all that are left leave when the request is abandoned, when the sender takes the offer back or cannot be
// reached, and when the lease is over, by our clock alone. With the last chunk, and when no fetch reads any of them,
// the offer is at its end, and its sender is told, once.
type offered struct {
	class     int
	peer      effects.Incarnation
	us        effects.Incarnation // who we are to it
	operation uint64
	pull      protocol.PullID
	grant     uint64
	request   uint64 // hash of the id of the request that it is for; 0 when it told none
	what      uint64 // hash of its keys, in order, and of its last tokens
	right
	host     table.Handle // where to tell the end
	already  []int64
	items    []offeredItem
	left     uint32 // chunks that have not left
	readers  uint32 // fetches that may be reading it
	missing  uint32 // chunks that left without having been read for their request
	code     effects.Code
	renews   bool   // its sender takes renewals
	resolved uint64 // the last plan of a fetch that it is a source of, and which one there
	source   uint32
	timer    kernel.TimerID `snap:"set"`
}

// An offeredItem is one chunk of an offer.
type offeredItem struct {
	place  store.Place // zero: it has left
	remote effects.RemotePage
	length uint32
}

// postpone keeps r.offer for later, and acknowledges it.
func (r *Receiver) postpone(v *env.Env, l *link.Links, ev *effects.Received, class int) {
	m, who := &r.offer, asker{to: ev.Request, conn: ev.Conn, class: class}
	may, known := r.rightOf(v, l, class)
	switch {
	case !known || v.Now.Add(r.cfg.LeadMin) > may.until:
		v.Out.Mark(MarkOfferTooLate)
		r.refuseOffer(v, who, effects.Expired, tooLate())
		return
	case !r.mayKeep(class, len(m.Keys)):
		v.Out.Mark(MarkOffersFull)
		r.refuseOffer(v, who, effects.TooMany, tooMany("offers kept", r.offers.Max()))
		return
	}
	request := requestHash(&r.Store, m.Ext.Request)
	p := r.landings.planFor(&r.Store, class, m.Keys, m.LastChunkTokens, true)
	p.unplan(v, &r.Store) // It began fills, and there will be none.
	r.already = p.claimReady(v, &r.Store, class, request, r.already[:0])
	if p.fresh() == 0 {
		r.rememberDone(v, class, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.OK, may.over)
		r.acknowledge(v, ev.Request, r.heard(), r.already, false)
		return
	}
	h, o := r.offers.Add()
	*o = offered{
		class: class, peer: effects.Incarnation(m.Ext.Incarnation), us: r.heard().us, operation: m.Ext.Operation, pull: m.PullID, grant: m.Ext.Grant,
		request: request, what: p.what(m.LastChunkTokens), right: may,
		host: r.notices.promise(v, class, m.SenderDoneURL), already: append(o.already[:0], r.already...), items: o.items[:0],
	}
	for i := range p.spots {
		at := &p.spots[i]
		if at.ready || at.repeat >= 0 {
			continue
		}
		o.items = append(o.items, offeredItem{
			place:  r.Store.Attach(p.hashes[i], m.Keys[i], h, uint32(len(o.items))),
			length: p.lengths[at.page],
			remote: effects.RemotePage{
				Buffer: effects.BufferID(m.SenderUUIDs[i]), Index: uint32(m.SenderIndexes[i]), Generation: effects.Generation(m.Ext.Generations[i]),
			},
		})
	}
	o.left = uint32(len(o.items))
	r.kept[class].offers++
	r.kept[class].places += len(o.items)
	r.byOffer.Add(operationHash(o.peer, o.operation), h)
	o.renews = r.renewable(v, class, m.Ext.Renew)
	r.renewAt(v, h, o)
	l.Reach(v, class) // So that the link is there when it is wanted.
	r.acknowledge(v, ev.Request, r.heard(), o.already, true)
	r.stirred = true
}

// mayKeep says whether an offer fits the tables. No sender may have more of them than it leaves: so one that offers
// without end always leaves as much for the next.
func (r *Receiver) mayKeep(class, chunks int) bool {
	k := &r.kept[class]
	return k.offers+1 <= r.offers.Max()-r.offers.Len() && k.places+chunks <= r.Store.PlacesLeft() && r.Store.Room(chunks)
}

// kept counts what is kept for one class.
type kept struct{ offers, places int }

// postponed answers a retry of an offer that is kept, or of which fetches still read though its chunks have left.
func (r *Receiver) postponed(v *env.Env, who asker, peer effects.Incarnation, operation, request uint64) bool {
	for p := r.byOffer.Seek(operationHash(peer, operation)); p.Found(); p = r.byOffer.Next(p) {
		if o := r.offers.Get(p.Handle()); o.peer == peer && o.operation == operation {
			if o.request != request || o.what != r.named(r.offer.Keys, r.offer.LastChunkTokens) {
				r.refuseOther(v, who, true)
				return true
			}
			v.Out.Mark(MarkOfferedAgain)
			if o.left == 0 && o.code != effects.OK {
				r.fail(v, who.to, true, r.heard(), o.code, ended(o.code), true)
			} else {
				r.acknowledge(v, who.to, r.heard(), o.already, true)
			}
			return true
		}
	}
	return false
}

// leave takes one chunk out of an offer.
func (r *Receiver) leave(v *env.Env, h table.Handle, item uint32, code effects.Code) {
	o := r.offers.Get(h)
	if o == nil || o.items[item].place == 0 {
		return
	}
	r.Store.Lose(r.Store.HashAt(o.items[item].place)) // Also to a fetch that has it now: no Get will find it here.
	r.Store.Detach(o.items[item].place, v)
	o.items[item].place = 0
	o.left--
	r.kept[o.class].places--
	r.stirred = true // Who waits for the link to this one may find the chunk elsewhere.
	if code != effects.OK {
		o.missing++
		if o.code == effects.OK {
			o.code = code
		}
	}
	r.maybeOver(v, h, o)
}

// drop takes out all chunks of an offer that are left.
func (r *Receiver) drop(v *env.Env, h table.Handle, code effects.Code) {
	o := r.offers.Get(h)
	for i := range o.items {
		if o.items[i].place != 0 {
			r.leave(v, h, uint32(i), code) // With the last one the offer may be gone: it is not looked at again.
			if o = r.offers.Get(h); o == nil {
				return
			}
		}
	}
}

// maybeOver ends an offer that nothing of is left, and that nobody reads.
func (r *Receiver) maybeOver(v *env.Env, h table.Handle, o *offered) {
	if o.left > 0 || o.readers > 0 {
		return
	}
	v.Timers.Stop(&o.timer)
	r.rememberDone(v, o.class, o.peer, o.operation, o.code, o.over)
	r.notify(v, o.host, o.class, done{
		pull: o.pull, us: o.us, to: o.peer, grant: o.grant, code: o.code, missing: o.missing,
	})
	r.kept[o.class].offers--
	r.byOffer.Remove(operationHash(o.peer, o.operation), h)
	o.items, o.already = table.Shed(o.items), table.Shed(o.already)
	r.offers.Remove(h)
}

// dropOffers drops the offers that match, and ends what still wants to read them. Of what a request abandons only its
// own fetches end: another's goes on, as the loan stands until its done.
func (r *Receiver) dropOffers(v *env.Env, code effects.Code, which offersOf) {
	ends := func(t effects.Ticket) bool {
		return which.request == 0 || r.fetches.Get(r.findFetch(t)).request == which.request
	}
	for slot := range r.offers.Slots() {
		h := r.offers.At(slot)
		if h == 0 || !which.has(r, r.offers.Get(h)) {
			continue
		}
		v.Out.Mark(MarkOfferDropped)
		if r.offers.Get(h).readers > 0 {
			r.Pipe.WithdrawFrom(v, h, code, ends)
			r.settleFetches(v)
		}
		if r.offers.Get(h) != nil {
			r.drop(v, h, code)
		}
	}
}

// offersOf says which offers: those of a class, of a request, those that a peer withdrew, or all.
type offersOf struct {
	class     int
	request   uint64
	withdrawn effects.Incarnation
	all       bool
}

func (w offersOf) has(r *Receiver, o *offered) bool {
	return w.all || w.class != 0 && o.class == w.class || w.request != 0 && o.request == w.request ||
		w.withdrawn != effects.Incarnation{} && o.peer == w.withdrawn && r.isWithdrawn(o.pull)
}

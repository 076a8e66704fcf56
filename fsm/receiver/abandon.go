package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// An abandoned request is remembered for a while: what comes for it later is refused, and so its sender learns
// that nobody wants it.
type abandoned struct {
	request uint64
	until   effects.Time
}

// abandons are the requests that were abandoned lately, those of longest ago first.
type abandons struct {
	slab  table.Slab[abandoned]
	index table.Index
	order table.List
}

func newAbandons(max uint32) abandons { return abandons{slab: table.NewSlab[abandoned](int(max))} }

func (a *abandons) forget(h table.Handle) {
	a.index.Remove(a.slab.Get(h).request, h)
	a.slab.Unlink(&a.order, h)
	a.slab.Remove(h)
}

func (a *abandons) add(now effects.Time, request uint64, ttl effects.Duration) {
	if a.slab.Max() == 0 || ttl <= 0 {
		return
	}
	if a.slab.Full() {
		a.forget(a.order.Front())
	}
	h, x := a.slab.Add()
	*x = abandoned{request: request, until: now.Add(ttl)}
	a.index.Add(request, h)
	a.slab.PushBack(&a.order, h)
}

func (a *abandons) has(now effects.Time, request uint64) bool {
	for h := a.order.Front(); h != 0 && a.slab.Get(h).until <= now; h = a.order.Front() {
		a.forget(h)
	}
	return request != 0 && a.index.Seek(request).Found()
}

func noRequest() *effects.Why {
	return &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request's id"}
}

// OnGiveUp handles a GiveUp.
func (r *Receiver) OnGiveUp(v *env.Env, t effects.Ticket, c *GiveUp) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK && len(c.Request) == 0 {
		code, why = effects.Invalid, noRequest()
	}
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	r.fetches.giveUpFor(v, &r.Store, &r.deferred, r.Store.Hash(c.Request), c.Keys)
	r.tellEnded(v)
	refuse(v, t, effects.OK)
}

// OnAbandon handles an Abandon: the request is cancelled wherever it stands here, and its senders hear of it.
func (r *Receiver) OnAbandon(v *env.Env, t effects.Ticket, c *Abandon) {
	if len(c.Request) == 0 {
		turnDown(v, t, effects.Invalid, noRequest())
		return
	}
	request := r.Store.Hash(c.Request)
	r.abandons.add(v.Now, request, r.cfg.AbandonTTL)
	if n := r.Store.Abandon(request, v, claimRef); n > 0 {
		v.Out.Mark(MarkAbandoned)
	}
	r.dropOffers(v, effects.Cancelled, offersOf{request: request})
	for slot := range r.pending.slots() {
		if h, q := r.pending.at(slot); h != 0 && q.who == request {
			v.Out.Mark(MarkAskAbandoned)
			r.refuseAsk(v, h, effects.Cancelled, ended(effects.Cancelled))
		}
	}
	for slot := range r.landings.slots() {
		if x := r.landings.standing(slot); x != nil && x.request == request {
			v.Out.Mark(MarkGrantAbandoned)
			r.takeBack(v, x, effects.Cancelled)
		}
	}
	refuse(v, t, effects.OK)
}

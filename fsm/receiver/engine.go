package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pd/pull"
	"github.com/kvferry/kvferry/fsm/pending"
)

// What the engine commands: each command is checked here, and then is its room's.

func noRequest() *effects.Why {
	return &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request's id"}
}

// OnGet handles a Get.
func (r *Receiver) OnGet(v *env.Env, t effects.Ticket, c *engine.Get) {
	code, why := r.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.Waitable("Wait", c.Wait)
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.Gets.Open(v, &r.Store, t, c)
}

// OnFetch handles a Fetch.
func (r *Receiver) OnFetch(v *env.Env, l *link.Links, t effects.Ticket, c *engine.Fetch) {
	code, why := r.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.Waitable("Patience", c.Patience)
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.Fetches.Open(v, &r.Store, &r.Deferred, l, t, c)
	r.pull.TellEnded(v, &r.Rooms)
}

// OnContains handles a Contains.
func (r *Receiver) OnContains(v *env.Env, t effects.Ticket, c *engine.Contains) {
	if code, why := r.CheckKeys(c.Keys); code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		e := r.Store.Find(r.Store.Hash(key), key)
		if _, ok := r.Store.Ready(e); !ok && r.Deferred.Location(v, &r.Store, e, 0) == 0 {
			break
		}
		hits++
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// OnRelease handles a Release.
func (r *Receiver) OnRelease(v *env.Env, t effects.Ticket, c *engine.Unpin) {
	r.Gets.Unpin(v, &r.Store, t, c)
}

// OnGiveUp handles a GiveUp.
func (r *Receiver) OnGiveUp(v *env.Env, t effects.Ticket, c *engine.GiveUp) {
	code, why := r.CheckKeys(c.Keys)
	if code == effects.OK && len(c.Request) == 0 {
		code, why = effects.Invalid, noRequest()
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.Fetches.GiveUpFor(v, &r.Store, &r.Deferred, r.Store.Hash(c.Request), c.Keys)
	r.pull.TellEnded(v, &r.Rooms)
	engine.Agree(v, t)
}

// OnAbandon handles an Abandon: the request is cancelled wherever it stands here, and its senders hear of it.
func (r *Receiver) OnAbandon(v *env.Env, t effects.Ticket, c *engine.Abandon) {
	if len(c.Request) == 0 {
		engine.TurnDown(v, t, effects.Invalid, noRequest())
		return
	}
	request := r.Store.Hash(c.Request)
	r.Abandons.Note(v.Now, request, r.Cfg.AbandonTTL)
	if n := r.Store.Abandon(request, v); n > 0 {
		v.Out.Mark(flow.MarkAbandoned)
	}
	r.pull.DropOffers(v, &r.Rooms, effects.Cancelled, pull.OffersOf{Request: request})
	for slot := range r.Pending.Slots() {
		if h, q := r.Pending.At(slot); h != 0 && q.Who == request {
			v.Out.Mark(pending.MarkAskAbandoned)
			r.refuseWaiting(v, h, effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		}
	}
	for slot := range r.Landings.Slots() {
		if x := r.Landings.Standing(slot); x != nil && x.Request == request {
			v.Out.Mark(land.MarkGrantAbandoned)
			r.takeBack(v, x, effects.Cancelled)
		}
	}
	engine.Agree(v, t)
}

// Abort ends a Get that waits or a Fetch, which a ticket stands for, and says whether it did.
func (r *Receiver) Abort(v *env.Env, ref kernel.Ref) bool {
	if ref.Owner == kernel.OwnerGets {
		return r.Gets.Abort(v, ref.Subject)
	}
	done := r.Fetches.Abort(v, &r.Store, &r.Deferred, ref.Subject)
	r.pull.TellEnded(v, &r.Rooms)
	return done
}

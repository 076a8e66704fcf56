package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
)

// What the engine commands: each command is checked here, and then is its room's.

func noRequest() *effects.Why {
	return &effects.Why{Field: "Request", Theirs: "empty", Ours: "a request's id"}
}

// OnGet handles a Get.
func (r *rooms) OnGet(v *env.Env, t effects.Ticket, c *engine.Get) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Wait", c.Wait)
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.gets.Open(v, &r.Store, t, c)
}

// OnFetch handles a Fetch.
func (r *Receiver) OnFetch(v *env.Env, l *link.Links, t effects.Ticket, c *engine.Fetch) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Patience", c.Patience)
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.fetches.Open(v, &r.Store, &r.deferred, l, t, c)
	r.pull.tellEnded(v, &r.rooms)
}

// OnContains handles a Contains.
func (r *rooms) OnContains(v *env.Env, t effects.Ticket, c *engine.Contains) {
	if code, why := r.checkKeys(c.Keys); code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		e := r.Store.Find(r.Store.Hash(key), key)
		if _, ok := r.Store.Ready(e); !ok && r.deferred.Location(v, &r.Store, e, 0) == 0 {
			break
		}
		hits++
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// OnRelease handles a Release.
func (r *rooms) OnRelease(v *env.Env, t effects.Ticket, c *engine.Unpin) {
	r.gets.Unpin(v, &r.Store, t, c)
}

// OnGiveUp handles a GiveUp.
func (r *Receiver) OnGiveUp(v *env.Env, t effects.Ticket, c *engine.GiveUp) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK && len(c.Request) == 0 {
		code, why = effects.Invalid, noRequest()
	}
	if code != effects.OK {
		engine.TurnDown(v, t, code, why)
		return
	}
	r.fetches.GiveUpFor(v, &r.Store, &r.deferred, r.Store.Hash(c.Request), c.Keys)
	r.pull.tellEnded(v, &r.rooms)
	engine.Agree(v, t)
}

// OnAbandon handles an Abandon: the request is cancelled wherever it stands here, and its senders hear of it.
func (r *Receiver) OnAbandon(v *env.Env, t effects.Ticket, c *engine.Abandon) {
	if len(c.Request) == 0 {
		engine.TurnDown(v, t, effects.Invalid, noRequest())
		return
	}
	request := r.Store.Hash(c.Request)
	r.abandons.add(v.Now, request, r.cfg.AbandonTTL)
	if n := r.Store.Abandon(request, v); n > 0 {
		v.Out.Mark(MarkAbandoned)
	}
	r.pull.dropOffers(v, &r.rooms, effects.Cancelled, offersOf{request: request})
	for slot := range r.pending.Slots() {
		if h, q := r.pending.At(slot); h != 0 && q.Who == request {
			v.Out.Mark(pending.MarkAskAbandoned)
			r.refuseWaiting(v, h, effects.Cancelled, ended(effects.Cancelled))
		}
	}
	for slot := range r.landings.Slots() {
		if x := r.landings.Standing(slot); x != nil && x.Request == request {
			v.Out.Mark(land.MarkGrantAbandoned)
			r.takeBack(v, x, effects.Cancelled)
		}
	}
	engine.Agree(v, t)
}

// OnAbort handles an Abort.
func (r *Receiver) OnAbort(v *env.Env, t effects.Ticket, c *Abort) {
	if !r.gets.Abort(v, c.Target) && !r.fetches.Abort(v, &r.Store, &r.deferred, c.Target) {
		engine.TurnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: number(uint64(c.Target)), Ours: "the ticket of a command that has not ended",
		})
		return
	}
	r.pull.tellEnded(v, &r.rooms)
	engine.Agree(v, t)
}

package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/protocol"
)

// What the engine commands: each command is checked here, and then is its room's.

func refuse(v *env.Env, t effects.Ticket, code effects.Code) {
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code})
}

func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }

func (r *Receiver) checkKeys(keys [][]byte) (effects.Code, *effects.Why) {
	switch {
	case r.draining:
		return effects.Draining, &effects.Why{}
	case len(keys) == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case len(keys) > int(r.cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(len(keys)), Ours: "at most " + number(r.cfg.BatchMax) + " (limits.keys_per_batch)",
		}
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, r.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// waitable says whether a wait can be one.
func waitable(field string, d effects.Duration) (effects.Code, *effects.Why) {
	if d < 0 {
		return effects.Invalid, &effects.Why{Field: field, Theirs: d.String(), Ours: "0 or more"}
	}
	return effects.OK, nil
}

// OnGet handles a Get.
func (r *Receiver) OnGet(v *env.Env, t effects.Ticket, c *Get) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Wait", c.Wait)
	}
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	r.gets.open(v, &r.Store, t, c)
}

// OnFetch handles a Fetch.
func (r *Receiver) OnFetch(v *env.Env, l *link.Links, t effects.Ticket, c *Fetch) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Patience", c.Patience)
	}
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	r.fetches.open(v, &r.Store, &r.deferred, l, t, c)
	r.tellEnded(v)
}

// OnContains handles a Contains.
func (r *Receiver) OnContains(v *env.Env, t effects.Ticket, c *Contains) {
	if code, why := r.checkKeys(c.Keys); code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		e := r.Store.Find(r.Store.Hash(key), key)
		if _, ok := r.Store.Ready(e); !ok && r.deferred.location(v, &r.Store, e, 0) == 0 {
			break
		}
		hits++
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// OnRelease handles a Release.
func (r *Receiver) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	r.gets.release(v, &r.Store, t, c)
}

// OnAbort handles an Abort.
func (r *Receiver) OnAbort(v *env.Env, t effects.Ticket, c *Abort) {
	if !r.gets.abort(v, c.Target) && !r.fetches.abort(v, &r.Store, &r.deferred, c.Target) {
		turnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: number(uint64(c.Target)), Ours: "the ticket of a command that has not ended",
		})
		return
	}
	r.tellEnded(v)
	refuse(v, t, effects.OK)
}

// Wake looks again at the Gets that waited for keys that became ready, or that will not.
func (r *Receiver) Wake(v *env.Env) {
	if len(r.Store.Became()) > 0 {
		r.deferred.stir()
	}
	r.gets.wake(v, &r.Store, &r.pending)
}

// Hope says whether a chunk is here, or may come of what is here; to look at only.
func (r *Receiver) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return expected(&r.Store, hash, key) || r.pending.asked(hash)
}

// loseAll notes that what a refused request or offer was for is not expected from it any more. One that its sender
// is to repeat at once still brings it.
func (r *Receiver) loseAll(keys [][]byte, code effects.Code) {
	if !r.gets.waits() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, key := range keys {
		r.Store.Lose(r.Store.Hash(key))
	}
}

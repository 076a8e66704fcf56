package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// What our engine asks of offers: that it has them, that it does not want them, and whether it may go on.

// Command takes a Fetch or a GiveUp.
func (t *Target) Command(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Fetch:
		t.fetch(e, x.Ticket, c)
	case *engine.GiveUp:
		t.giveUp(e, x.Ticket, c)
	default:
		return false
	}
	return true
}

// fetch begins with a Fetch.
func (t *Target) fetch(e *flow.Env, to effects.Ticket, c *engine.Fetch) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.Waitable("Patience", c.Patience)
	}
	if code == effects.OK && e.Abandons.Ordered(e.Store.RequestHash(c.Request)) {
		code, why = effects.Cancelled, &effects.Why{
			Field: "Request", Ours: "being abandoned", Remedy: "ask again when that has ended",
		}
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, to, code, why)
		return
	}
	e.Fetches.Open(&e.Env, &e.Store, &e.Deferred, &e.Ended, e.Links, to, c)
	t.tellEnded(e)
}

// giveUp lets go of what is kept of a request.
func (t *Target) giveUp(e *flow.Env, to effects.Ticket, c *engine.GiveUp) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK && len(c.Request) == 0 {
		code, why = effects.Invalid, flow.NoRequest()
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, to, code, why)
		return
	}
	e.Fetches.GiveUpFor(&e.Env, &e.Store, &e.Deferred, e.Store.Hash(c.Request), c.Keys)
	t.tellEnded(e)
	engine.Agree(&e.Env, to)
}

// Abort ends a Fetch that waits or runs, and says whether it did.
func (t *Target) Abort(e *flow.Env, ref kernel.Ref) bool {
	done := e.Fetches.Abort(&e.Env, &e.Store, &e.Deferred, ref.Subject)
	t.tellEnded(e)
	return done
}

// Admit lets fetches that are short of staging pages have what became free.
func (t *Target) Admit(e *flow.Env) {
	e.Fetches.Admit(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
}

// StartFetches looks again at the fetches that wait, when something came that they may wait for, or left: at so many a
// step.
func (t *Target) StartFetches(e *flow.Env) {
	heardLost(e) // By the Gets.
	if dropped := e.Store.Dropped(); e.Deferred.Stirred() || dropped {
		e.Fetches.LookAgain()
	}
	any := false
	for h := e.Fetches.NextLook(&e.Env); h != 0; h = e.Fetches.NextLook(&e.Env) {
		any = true
		if e.Abandons.Ordered(e.Fetches.Request(h)) {
			continue // What there is for it is condemned, and it is looked at again then.
		}
		e.Fetches.Start(&e.Env, &e.Store, &e.Deferred, &e.Ended, e.Links, h)
		t.tellEnded(e)
	}
	if any {
		e.Gets.GiveUp(&e.Env, &e.Store, &e.Ended, &e.Pending) // What fetches took with them.
		heardLost(e)
	}
}

// heardLost ends what was to be heard of chunks that are lost, unless there are Gets that have not.
func heardLost(e *flow.Env) {
	if !e.Gets.Cut() {
		e.Store.HeardLost()
	}
}

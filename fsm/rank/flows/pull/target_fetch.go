package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// This file handles the engine's commands about offers: Fetch, GiveUp and Abort, and the passes over waiting
// fetches.

// Command takes a Fetch or a GiveUp, and returns false for any other command.
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

// fetch starts a Fetch, or refuses it at once.
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

// giveUp releases the chunks that are kept for a request.
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

// Abort ends a Fetch that waits or runs, and reports whether it did.
func (t *Target) Abort(e *flow.Env, ref kernel.Ref) bool {
	done := e.Fetches.Abort(&e.Env, &e.Store, &e.Deferred, ref.Subject)
	t.tellEnded(e)
	return done
}

// Admit gives free staging pages to the fetches that are short of them.
func (t *Target) Admit(e *flow.Env) {
	e.Fetches.Admit(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
}

// StartFetches looks again at the waiting fetches if something arrived or left that may decide them, at as many
// as the step has work for.
func (t *Target) StartFetches(e *flow.Env) {
	heardLost(e) // The Gets have been notified.
	if dropped := e.Store.Dropped(); e.Deferred.Stirred() || dropped {
		e.Fetches.LookAgain()
	}
	any := false
	for h := e.Fetches.NextLook(&e.Env); h != 0; h = e.Fetches.NextLook(&e.Env) {
		any = true
		if e.Abandons.Ordered(e.Fetches.Request(h)) {
			continue // The request's offers are condemned, and the fetch is looked at again when they end.
		}
		e.Fetches.Start(&e.Env, &e.Store, &e.Deferred, &e.Ended, e.Links, h)
		t.tellEnded(e)
	}
	if any {
		e.Gets.GiveUp(&e.Env, &e.Store, &e.Ended, &e.Pending) // The fetches may have taken chunks that Gets wait for.
		heardLost(e)
	}
}

// heardLost clears the list of lost chunks, unless some Gets have not been notified of them yet.
func heardLost(e *flow.Env) {
	if !e.Gets.Cut() {
		e.Store.HeardLost()
	}
}

package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// This file handles the engine's commands about offers: Fetch, GiveUp and Abort, and the passes over waiting
// fetches.

// OnCommand takes a Fetch or a GiveUp, and returns false for any other command.
func (t *Target) OnCommand(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Fetch:
		t.startFetch(e, x.Ticket, c)
	case *engine.GiveUp:
		t.releaseChunks(e, x.Ticket, c)
	default:
		return false
	}
	return true
}

// startFetch starts a Fetch, or refuses it at once.
func (t *Target) startFetch(e *flow.Env, ticket effects.Ticket, c *engine.Fetch) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.CheckDuration("Timeout", c.Timeout)
	}
	if code == effects.OK && e.Abandons.IsAbandoning(e.Store.HashRequest(c.Request)) {
		code, why = effects.Cancelled, &effects.Why{
			Field: "Request", Ours: "being abandoned", Remedy: "retry when the Abandon has ended",
		}
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, ticket, code, why)
		return
	}
	e.Fetches.OnFetch(&e.Env, &e.Store, &e.Deferred, &e.Outcomes, e.Links, ticket, c)
	t.queueEndedDones(e)
}

// releaseChunks releases the chunks that are kept for a request.
func (t *Target) releaseChunks(e *flow.Env, ticket effects.Ticket, c *engine.GiveUp) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK && len(c.Request) == 0 {
		code, why = effects.Invalid, flow.NoRequestReason()
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, ticket, code, why)
		return
	}
	e.Fetches.GiveUpChunks(&e.Env, &e.Store, &e.Deferred, c)
	t.queueEndedDones(e)
	engine.DeliverOK(&e.Env, ticket)
}

// AbortCommand ends a Fetch that waits or runs, and reports whether it did.
func (t *Target) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	done := e.Fetches.AbortFetch(&e.Env, &e.Store, &e.Deferred, ref.Subject)
	t.queueEndedDones(e)
	return done
}

// AdmitFetches gives free staging pages to the fetches that are short of them.
func (t *Target) AdmitFetches(e *flow.Env) {
	e.Fetches.GrantStaging(&e.Env, &e.Store, &e.Deferred)
	t.queueEndedDones(e)
}

// StartFetches looks again at the waiting fetches if something arrived or left that may decide them, at as many
// as the step has work for.
func (t *Target) StartFetches(e *flow.Env) {
	clearLost(e) // The Gets have been notified.
	if dropped := e.Store.PollDropped(); e.Deferred.TakeChanged() || dropped {
		e.Fetches.RequestPass()
	}
	started := false
	for h := e.Fetches.NextInPass(&e.Env); h != 0; h = e.Fetches.NextInPass(&e.Env) {
		started = true
		if e.Abandons.IsAbandoning(e.Fetches.RequestOf(h)) {
			continue // The request's offers are condemned, and the fetch is looked at again when they end.
		}
		e.Fetches.StartFetch(&e.Env, &e.Store, &e.Deferred, &e.Outcomes, e.Links, h)
		t.queueEndedDones(e)
	}
	if started {
		e.Gets.FinishLost(&e.Env, &e.Store, &e.Outcomes, &e.Pending) // The fetches may have taken chunks that Gets wait for.
		clearLost(e)
	}
}

// clearLost clears the list of lost chunks, unless some Gets have not been notified of them yet.
func clearLost(e *flow.Env) {
	if !e.Gets.HasBacklog() {
		e.Store.ClearLostKeys()
	}
}

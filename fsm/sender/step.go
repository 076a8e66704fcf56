package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
)

// A step is what a flow is given for one step of the rank: the instant and the effects, the links, and what all flows
// share. It lies on the stack, and nobody keeps it.
type step struct {
	env.Env // a copy: by a pointer to it the compiler would move the step's to the heap
	*shared
	links *link.Links
}

// Shared is what each flow uses and none owns.
type shared struct {
	cfg      Config         `snap:"share"`
	tickets  engine.Tickets `snap:"skip"` // as the rows say
	requests engine.Requests
	proxy    proxy
	breakers link.Breakers
	draining bool
}

// hungUp is what is said of a put whose question got no answer, as often as it was asked.
func (e *step) hungUp(code effects.Code) effects.Why {
	w := link.HungUp(code, e.cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + number(attemptsMax) + " times"
	}
	return w
}

package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
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
	breakers breakers
	draining bool
}

// A gate says whether what waits for a peer can go on.
type gate uint8

const (
	gateShut   gate = iota // not now
	gateOpen               // its link is up
	gateUnfit              // never: the configurations differ
	gateAbsent             // nobody is there
)

// gate is that of a peer, and what shut it.
func (e *step) gate(peer table.Handle) (gate, effects.Code) {
	state, cause := e.links.Outbound(peer).State()
	switch state {
	case link.Ready:
		return gateOpen, effects.OK
	case link.Backoff:
		switch {
		case cause == effects.Mismatch || cause == effects.Unsupported:
			return gateUnfit, cause
		case e.links.Outbound(peer).Absent():
			return gateAbsent, cause
		}
	case link.Idle, link.Opening, link.Greeting, link.Importing, link.Listing:
	}
	return gateShut, cause
}

// hungUp is what is said of a put whose question got no answer, as often as it was asked.
func (e *step) hungUp(code effects.Code) effects.Why {
	w := link.HungUp(code, e.cfg.ReplyTimeout)
	if w.Ours != "" {
		w.Ours += ", " + number(attemptsMax) + " times"
	}
	return w
}

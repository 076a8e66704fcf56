package engine

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A State is the state of a row of this room, for statistics about what was tried. No decision depends on it.
type State uint8

// The states.
const (
	Gone State = iota // the row no longer exists, or never did
	ReserveWaiting
	ReserveHeld
	RequestOpen
	RequestQueued
	RequestTold
	ProxyOpening
	ProxyOpen
)

// StateNames returns the names of the states, in their order.
func StateNames() []string {
	return []string{"gone", "reserve waiting", "reserve held", "request open", "request queued", "request told",
		"proxy opening", "proxy open"}
}

// State returns the state of the row that a ticket, a completion or a deadline belongs to.
func (x *Engine) State(of kernel.Ref) State {
	switch of.Kind {
	case kindReserve:
		return x.reserves.state(of.Subject)
	case kindTell, kindRequest:
		return x.requests.state(of.Subject)
	case kindShare, kindWithdraw:
		return ReserveHeld // the pages are of a reservation
	}
	return x.proxy.state()
}

func (x *proxy) state() State {
	if x.opening {
		return ProxyOpening
	}
	return ProxyOpen
}

func (x *reserves) state(h table.Handle) State {
	switch {
	case x.slab.Get(h) == nil:
		return Gone
	case x.waits(h):
		return ReserveWaiting
	}
	return ReserveHeld
}

func (x *requests) state(h table.Handle) State {
	if r := x.slab.Get(h); r != nil {
		return RequestOpen + State(r.state)
	}
	return Gone
}

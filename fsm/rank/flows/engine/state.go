package engine

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A State is where something in this room stands, for those who count what was tried. It decides nothing.
type State uint8

// States.
const (
	Gone State = iota // what was meant is no more, or never was
	ReserveWaiting
	ReserveHeld
	RequestOpen
	RequestQueued
	RequestTold
	ProxyOpening
	ProxyOpen
)

// StateNames are the names of the states, in their order.
func StateNames() []string {
	return []string{"gone", "reserve waiting", "reserve held", "request open", "request queued", "request told",
		"proxy opening", "proxy open"}
}

// State is that of what a ticket, a completion or a deadline is of.
func (x *Engine) State(of kernel.Ref) State {
	switch of.Kind {
	case kindReserve:
		return x.reserves.state(of.Subject)
	case kindTell, kindRequest:
		return x.requests.state(of.Subject)
	case kindShare, kindWithdraw:
		return ReserveHeld // It is of one.
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

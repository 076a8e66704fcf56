package engine

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A State is the state of a row of this room, for statistics about what was tried. No decision depends on it.
type State uint8

// The states.
const (
	NoRow State = iota // the row no longer exists, or never did
	ReserveWaiting
	ReserveGranted
	RequestOpen
	RequestQueued
	RequestNotified
	ProxyOpening
	ProxyOpen
)

// StateNames returns the names of the states, in their order.
func StateNames() []string {
	return []string{"gone", "reserve waiting", "reserve granted", "request open", "request queued", "request notified",
		"proxy opening", "proxy open"}
}

// RowState returns the state of the row that a ticket, a completion or a deadline belongs to.
func (x *Engine) RowState(ref kernel.Ref) State {
	switch ref.Kind {
	case kindReserve:
		return x.reserves.rowState(ref.Subject)
	case kindNotify, kindRequest:
		return x.requests.rowState(ref.Subject)
	case kindShare, kindWithdraw:
		return ReserveGranted // the pages are of a reservation
	}
	return x.proxy.rowState()
}

func (x *proxy) rowState() State {
	if x.opening {
		return ProxyOpening
	}
	return ProxyOpen
}

func (x *reserves) rowState(h table.Handle) State {
	switch {
	case x.slab.Get(h) == nil:
		return NoRow
	case x.isWaiting(h):
		return ReserveWaiting
	}
	return ReserveGranted
}

func (x *requests) rowState(h table.Handle) State {
	if r := x.slab.Get(h); r != nil {
		return RequestOpen + State(r.state)
	}
	return NoRow
}

package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is what something in this room is in, for those who count what was
// tried. It decides nothing.
type Situation uint8

// Situations. A put's are its phases; delivered ones stay until nothing touches their
// pages.
const (
	Gone      Situation = iota // what was meant is no more, or never was
	PutPhases                  // the first of the phases, then the same of delivered puts
	_                          // asking
	_                          // moving
	_                          // settling
	_                          // committing
	_                          // confirming
	_                          // offering
	_                          // offered
	_                          // short
	_                          // copying
	PutsDelivered
	_
	_
	_
	_
	_
	_
	_
	_
	_
	ReserveWaiting
	ReserveHeld
	RequestOpen
	RequestQueued
	RequestTold
	ProxyOpening
	ProxyOpen
	Situations
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	return []string{"gone",
		"put waiting", "put asking", "put moving", "put settling", "put committing", "put confirming",
		"put offering", "put offered", "put short", "put copying",
		"delivered put waiting", "delivered put asking", "delivered put moving", "delivered put settling",
		"delivered put committing", "delivered put confirming", "delivered put offering", "delivered put offered",
		"delivered put short", "delivered put copying",
		"reserve waiting", "reserve held", "request open", "request queued", "request told", "proxy opening", "proxy open"}
}

// SituationOf is that of what a command's target, Put or Reserve, is in.
func (s *Sender) SituationOf(t effects.Ticket) Situation {
	switch ref := s.tickets.find(t); ref.Kind {
	case ticketPut:
		return s.put(ref.Subject)
	case ticketReserve:
		return s.reserve(ref.Subject)
	}
	return Gone
}

// SituationFor is that of what a completion is for.
func (s *Sender) SituationFor(ref kernel.Ref) Situation {
	switch ref.Kind {
	case kindAsk, kindTransfer, kindCommit, kindOffer, kindCopy:
		return s.put(ref.Subject)
	case kindTell:
		return s.request(ref.Subject)
	}
	return s.proxyIs()
}

// SituationLoan is that of the put that lent its pages.
func (s *Sender) SituationLoan(ref kernel.Ref) Situation { return s.put(ref.Subject) }

// SituationDue is that of what a deadline is for.
func (s *Sender) SituationDue(ref kernel.Ref) Situation {
	switch ref.Kind {
	case timerPut, timerAnswer, timerLease:
		return s.put(ref.Subject)
	case timerReserve:
		return s.reserve(ref.Subject)
	case timerRequest:
		return s.request(ref.Subject)
	}
	return s.proxyIs()
}

func (s *Sender) put(h table.Handle) Situation {
	p := s.puts.Get(h)
	switch {
	case p == nil:
		return Gone
	case p.delivered:
		return PutsDelivered + Situation(p.phase)
	}
	return PutPhases + Situation(p.phase)
}

func (s *Sender) reserve(h table.Handle) Situation {
	switch {
	case s.reserves.slab.Get(h) == nil:
		return Gone
	case s.reserves.waits(h):
		return ReserveWaiting
	}
	return ReserveHeld
}

func (s *Sender) request(h table.Handle) Situation {
	if r := s.requests.slab.Get(h); r != nil {
		return RequestOpen + Situation(r.state)
	}
	return Gone
}

func (s *Sender) proxyIs() Situation {
	if s.proxy.opening {
		return ProxyOpening
	}
	return ProxyOpen
}

package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is what something in this room is in, for those who count what was
// tried. It decides nothing.
type Situation uint8

// Situations. A put's are those of its flow; delivered ones stay until nothing touches their pages.
const (
	Gone       Situation = iota // what was meant is no more, or never was
	putWaiting                  // the first of the phases; the same of delivered puts follow
	putAsking
	putMoving
	putSettling
	putCommitting
	putConfirming
	putOffering
	putOffered
	putShort
	putCopying
	putsDelivered
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
	switch ref := s.tickets.Find(t); ref.Kind {
	case ticketPush:
		return s.push.puts.Get(ref.Subject).situation()
	case ticketPull:
		return s.pull.puts.Get(ref.Subject).situation()
	case ticketReserve:
		return s.reserve(ref.Subject)
	}
	return Gone
}

// SituationFor is that of what a completion is for.
func (s *Sender) SituationFor(ref kernel.Ref) Situation {
	switch ref.Kind {
	case kindAsk, kindTransfer, kindCommit:
		return s.push.puts.Get(ref.Subject).situation()
	case kindCopy, kindOffer, kindWithdraw:
		return s.pull.puts.Get(ref.Subject).situation()
	case kindTell:
		return s.request(ref.Subject)
	}
	return s.proxy.situation()
}

// SituationLoan is that of the put that lent its pages.
func (s *Sender) SituationLoan(ref kernel.Ref) Situation {
	return s.pull.puts.Get(ref.Subject).situation()
}

// SituationDue is that of what a deadline is for.
func (s *Sender) SituationDue(ref kernel.Ref) Situation {
	switch ref.Kind {
	case timerPush, timerPushAnswer:
		return s.push.puts.Get(ref.Subject).situation()
	case timerPull, timerPullAnswer, timerLease:
		return s.pull.puts.Get(ref.Subject).situation()
	case timerReserve:
		return s.reserve(ref.Subject)
	case timerRequest:
		return s.request(ref.Subject)
	}
	return s.proxy.situation()
}

func (p *pushPut) situation() Situation {
	if p == nil {
		return Gone
	}
	return ofPut(p.Delivered(), [...]Situation{
		pushWaiting: putWaiting, pushAsking: putAsking, pushMoving: putMoving, pushSettling: putSettling,
		pushCommitting: putCommitting, pushConfirming: putConfirming,
	}[p.phase])
}

func (p *pullPut) situation() Situation {
	switch {
	case p == nil:
		return Gone
	case p.phase == pullWithdrawing && p.conn != 0:
		return ofPut(p.Delivered(), putConfirming)
	}
	return ofPut(p.Delivered(), [...]Situation{
		pullShort: putShort, pullCopying: putCopying, pullWaiting: putWaiting, pullOffering: putOffering,
		pullOffered: putOffered, pullWithdrawing: putCommitting,
	}[p.phase])
}

func ofPut(delivered bool, phase Situation) Situation {
	if delivered {
		return phase + putsDelivered - putWaiting
	}
	return phase
}

func (s *Sender) reserve(h table.Handle) Situation {
	switch {
	case !s.reserves.Has(h):
		return Gone
	case s.reserves.Waits(h):
		return ReserveWaiting
	}
	return ReserveHeld
}

func (s *Sender) request(h table.Handle) Situation {
	if state, ok := s.requests.State(h); ok {
		return RequestOpen + Situation(state)
	}
	return Gone
}

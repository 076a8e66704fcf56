package register

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// Both ends of a registration-driven push report how its time was spent (L11). timesOracle measures the same times by
// messages, commands and transfers.

// The checks of this file.
var (
	checkWriteTimes   = oracle.NewCheck("L11", "times of registrations")
	checkWriteWaits   = oracle.NewCheck("L11", "waits of registrations for their requests")
	checkLendTimes    = oracle.NewCheck("L11", "times of lent blocks")
	checkReceiveTimes = oracle.NewCheck("L11", "times of registered blocks")
)

// A registrationTime is a registration that a node has not answered.
type registrationTime struct {
	node              oracle.Node
	attempts          []effects.Request // without those that were refused
	peer              effects.Incarnation
	operation         uint64
	grant             effects.GrantID
	request, transfer []byte
	arrivedAt         effects.Time
	matched           effects.Ticket // of the Finished whose name is the same; zero: none yet
	matchedAt         effects.Time
	writes            bool
	writeAt           effects.Time
	lend              effects.Ticket  // of the Finished whose blocks are written; zero: not known
	ambiguous         bool            // the registration may belong to several Finished
	answered          effects.Request // the attempt that was answered in this step; zero: none
}

// A lendTime is a Finished without an outcome.
type lendTime struct {
	node              oracle.Node
	ticket            effects.Ticket
	request, transfer []byte
	startedAt         effects.Time
	isNew             bool // in this step
	writes            int  // in flight
	since             effects.Time
	written           effects.Duration
	uncertain         bool // a write may be of another Finished
}

// A receptionTime is a Register without an outcome.
type receptionTime struct {
	node      oracle.Node
	ticket    effects.Ticket
	body      *ops.Register
	startedAt effects.Time
	asked     []protocol.PushProducer
	sentAt    effects.Time // when the last producer was asked first
	uncertain bool         // there is another Register of the same name
}

// registerTimes has what is open at all nodes.
type registerTimes struct {
	registrations []registrationTime
	lends         []lendTime
	receptions    []receptionTime
}

// A nameMatch says how two names of a request compare, by the rules of docs/protocol.md.
type nameMatch uint8

const (
	nameOther nameMatch = iota
	nameLike            // equal but for what an engine appends
	nameSame
)

func matchNames(request, transfer, otherRequest, otherTransfer []byte) nameMatch {
	switch {
	case !bytes.Equal(transfer, otherTransfer):
		return nameOther
	case len(transfer) > 0 || bytes.Equal(request, otherRequest):
		return nameSame
	case bytes.Equal(protocol.TrimRequestSuffix(request), protocol.TrimRequestSuffix(otherRequest)):
		return nameLike
	}
	return nameOther
}

var timesOracle = oracle.New("times of registrations", "pushes into registered blocks report how their time was spent",
	func(l *oracle.Subscriptions[registerTimes]) {
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Received) { s.recordMessage(call, e) })
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Command) { s.recordCommand(call, e) })
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Send) { s.recordSend(call, e) })
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Transfer) { s.recordTransfer(call, e) })
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Reply) {
			for i := range s.registrations {
				x := &s.registrations[i]
				if x.node == call.Node() && slices.Contains(x.attempts, e.Request) {
					x.answered = e.Request
				}
			}
		})
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Deliver) { s.recordOutcome(call, e) })
		oracle.On(l, func(s *registerTimes, call *oracle.Call, e *effects.Observe) {
			//exhaustive:ignore
			switch e.Fact {
			case effects.FactRegistered:
				s.verifyRegistration(call, e)
			case effects.FactWritten:
				s.verifyLend(call, e)
			case effects.FactReceived:
				s.verifyReception(call, e)
			default:
			}
		})
		oracle.On(l, func(s *registerTimes, call *oracle.Call, _ oracle.StepEnded) {
			// An attempt that was refused has no report. The others go on.
			for i := range s.registrations {
				if x := &s.registrations[i]; x.answered != 0 && x.node == call.Node() {
					x.attempts = slices.DeleteFunc(x.attempts, func(r effects.Request) bool { return r == x.answered })
					x.answered = 0
				}
			}
			s.registrations = slices.DeleteFunc(s.registrations, func(x registrationTime) bool { return len(x.attempts) == 0 })
			for i := range s.lends {
				s.lends[i].isNew = s.lends[i].isNew && s.lends[i].node != call.Node()
			}
		})
		oracle.On(l, func(s *registerTimes, call *oracle.Call, _ oracle.IncarnationEnded) {
			s.registrations = slices.DeleteFunc(s.registrations, func(x registrationTime) bool { return x.node == call.Node() })
			s.lends = slices.DeleteFunc(s.lends, func(x lendTime) bool { return x.node == call.Node() })
			s.receptions = slices.DeleteFunc(s.receptions, func(x receptionTime) bool { return x.node == call.Node() })
		})
	})

// recordMessage records a registration when its first attempt arrives.
func (s *registerTimes) recordMessage(call *oracle.Call, e *effects.Received) {
	var m protocol.PushRegistration
	if e.Channel != effects.ChannelRegister || e.Request == 0 || m.Decode(e.Body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	x := registrationTime{
		node: call.Node(), attempts: []effects.Request{e.Request}, peer: effects.Incarnation(m.Ext.Incarnation), operation: m.Ext.Operation,
		grant: effects.GrantID(m.Ext.Grant), request: bytes.Clone(m.RequestID), transfer: bytes.Clone(m.Ext.Transfer),
		arrivedAt: call.LocalTime(),
	}
	if i := slices.IndexFunc(s.registrations, func(y registrationTime) bool {
		return y.node == x.node && y.peer == x.peer && y.operation == x.operation
	}); i >= 0 {
		s.registrations[i].attempts = append(s.registrations[i].attempts, e.Request)
		return
	}
	for i := range s.lends {
		s.match(&x, &s.lends[i], call.LocalTime())
	}
	s.registrations = append(s.registrations, x)
}

// match records that a registration belongs to a Finished, if their names say so.
func (*registerTimes) match(x *registrationTime, y *lendTime, now effects.Time) {
	if x.node != y.node || x.matched != 0 {
		return
	}
	switch matchNames(x.request, x.transfer, y.request, y.transfer) {
	case nameSame:
		x.matched, x.matchedAt = y.ticket, now
	case nameLike:
		x.ambiguous = true
	case nameOther:
	}
}

func (s *registerTimes) recordCommand(call *oracle.Call, e *effects.Command) {
	switch body := e.Body.(type) {
	case *ops.Finished:
		y := lendTime{node: call.Node(), ticket: e.Ticket, request: body.Request, transfer: body.Transfer,
			startedAt: call.LocalTime(), isNew: true}
		for i := range s.registrations {
			s.match(&s.registrations[i], &y, y.startedAt)
		}
		s.lends = append(s.lends, y)
	case *ops.Register:
		x := receptionTime{node: call.Node(), ticket: e.Ticket, body: body, startedAt: call.LocalTime()}
		for i := range s.receptions {
			if y := &s.receptions[i]; y.isOf(call.Node(), body.Request, body.Transfer) {
				x.uncertain, y.uncertain = true, true
			}
		}
		s.receptions = append(s.receptions, x)
	}
}

func (x *receptionTime) isOf(node oracle.Node, request, transfer []byte) bool {
	return x.node == node && bytes.Equal(x.body.Request, request) && bytes.Equal(x.body.Transfer, transfer)
}

// recordSend records that a producer rank is asked.
func (s *registerTimes) recordSend(call *oracle.Call, e *effects.Send) {
	var m protocol.PushRegistration
	if protocol.PushKindOf(e.Body) != protocol.PushKindRegistration || m.Decode(e.Body, &pd.WireLimits) != nil {
		return
	}
	for i := range s.receptions {
		x := &s.receptions[i]
		same := func(p protocol.PushProducer) bool {
			return p.Port == m.Remote.Port && bytes.Equal(p.Host, m.Remote.Host)
		}
		if x.isOf(call.Node(), m.RequestID, m.Ext.Transfer) && !slices.ContainsFunc(x.asked, same) {
			m.Remote.Host = bytes.Clone(m.Remote.Host)
			x.asked, x.sentAt = append(x.asked, m.Remote), call.LocalTime()
		}
	}
}

func (s *registerTimes) recordTransfer(call *oracle.Call, e *effects.Transfer) {
	if e.Read {
		return
	}
	for i := range s.registrations {
		x := &s.registrations[i]
		if x.node != call.Node() || x.peer != e.Peer || x.grant != e.Grant || x.writes {
			continue
		}
		x.writes, x.writeAt = true, call.LocalTime()
		var of *lendTime
		for j := range s.lends {
			y := &s.lends[j]
			if y.node != x.node || matchNames(x.request, x.transfer, y.request, y.transfer) == nameOther {
				continue
			}
			if y.uncertain = y.uncertain || of != nil; of != nil {
				of.uncertain = true
			}
			of = y
		}
		if of != nil {
			x.lend = of.ticket
			if of.writes++; of.writes == 1 {
				of.since = call.LocalTime()
			}
		}
	}
}

func (s *registerTimes) recordOutcome(call *oracle.Call, e *effects.Deliver) {
	is := func(node oracle.Node, t effects.Ticket) bool { return node == call.Node() && t == e.Ticket }
	for i := range s.lends {
		if y := &s.lends[i]; !is(y.node, y.ticket) || !y.isNew || e.Code == effects.OK {
			continue
		}
		for j := range s.registrations { // The Finished may have been refused, and then matches nothing.
			if x := &s.registrations[j]; x.node == call.Node() && x.matched == e.Ticket {
				x.matched = 0
			}
		}
	}
	s.lends = slices.DeleteFunc(s.lends, func(x lendTime) bool { return is(x.node, x.ticket) })
	s.receptions = slices.DeleteFunc(s.receptions, func(x receptionTime) bool { return is(x.node, x.ticket) })
}

// verifyRegistration compares the report of a registration that is answered.
func (s *registerTimes) verifyRegistration(call *oracle.Call, e *effects.Observe) {
	i := slices.IndexFunc(s.registrations, func(x registrationTime) bool {
		return x.node == call.Node() && x.answered != 0 && x.peer == e.Peer && x.grant == effects.GrantID(e.ID)
	})
	if i < 0 {
		call.FailCheck(checkWriteTimes, "node %d reports the end of a registration that it has not answered in this step", call.Node())
		return
	}
	x, now, r := s.registrations[i], call.LocalTime(), e.Report
	s.registrations = slices.Delete(s.registrations, i, i+1)
	wire, waited := effects.Duration(0), now.Sub(x.arrivedAt)
	if x.writes {
		wire = now.Sub(x.writeAt)
		s.endWrite(call.Node(), x.lend, now)
	}
	call.CountJudged(checkWriteTimes)
	if r == nil || r.Began != x.arrivedAt || r.Phases.Sum() != now.Sub(x.arrivedAt) || r.Phases[effects.PhaseWire] != wire {
		call.FailCheck(checkWriteTimes, "node %d answers a registration that arrived at %d and was written for %d ns, at %d, and reports %+v",
			call.Node(), x.arrivedAt, wire, now, r)
		return
	}
	if x.ambiguous {
		call.CountVoid(checkWriteWaits)
		return
	}
	call.CountJudged(checkWriteWaits)
	if x.matched != 0 {
		waited = x.matchedAt.Sub(x.arrivedAt)
	}
	if r.Phases[effects.PhaseQueue] != waited {
		call.FailCheck(checkWriteWaits, "node %d answers a registration that waited %d ns for its request, and reports %+v", call.Node(),
			waited, *r)
	}
}

// endWrite records that blocks of a Finished are not written to a rank any more.
func (s *registerTimes) endWrite(node oracle.Node, t effects.Ticket, now effects.Time) {
	for i := range s.lends {
		if y := &s.lends[i]; y.node == node && y.ticket == t {
			if y.writes--; y.writes == 0 {
				y.written += now.Sub(y.since)
			}
		}
	}
}

// verifyLend compares the report of lent blocks.
func (s *registerTimes) verifyLend(call *oracle.Call, e *effects.Observe) {
	i := slices.IndexFunc(s.lends, func(x lendTime) bool { return x.node == call.Node() && x.ticket == effects.Ticket(e.ID) })
	if i < 0 {
		return
	}
	x, now, r := &s.lends[i], call.LocalTime(), e.Report
	if x.uncertain {
		call.CountVoid(checkLendTimes)
		return
	}
	call.CountJudged(checkLendTimes)
	written := x.written
	if x.writes > 0 {
		written += now.Sub(x.since)
	}
	if r == nil || r.Began != x.startedAt || r.Phases.Sum() != now.Sub(x.startedAt) || r.Phases[effects.PhaseWire] != written {
		call.FailCheck(checkLendTimes, "node %d has lent blocks since %d, and they were written for %d ns until %d, and reports %+v",
			call.Node(), x.startedAt, written, now, r)
	}
}

// verifyReception compares the report of registered blocks.
func (s *registerTimes) verifyReception(call *oracle.Call, e *effects.Observe) {
	i := slices.IndexFunc(s.receptions, func(x receptionTime) bool { return x.node == call.Node() && x.ticket == effects.Ticket(e.ID) })
	if i < 0 {
		return
	}
	x, now, r := &s.receptions[i], call.LocalTime(), e.Report
	if x.uncertain {
		call.CountVoid(checkReceiveTimes)
		return
	}
	call.CountJudged(checkReceiveTimes)
	wire := effects.Duration(0)
	if len(x.asked) == len(x.body.Producers) {
		wire = now.Sub(x.sentAt)
	}
	if r == nil || r.Began != x.startedAt || r.Phases.Sum() != now.Sub(x.startedAt) || r.Phases[effects.PhaseWire] != wire {
		call.FailCheck(checkReceiveTimes, "node %d has registered blocks at %d, and all producers were asked for %d ns until %d, and reports %+v",
			call.Node(), x.startedAt, wire, now, r)
	}
}

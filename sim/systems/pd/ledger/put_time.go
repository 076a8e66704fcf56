package ledger

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A put reports how its time was spent (L11). The oracle measures the same times by what the driver does: when a request
// leaves and its reply arrives, when a transfer begins and ends. These times are what the plan and its faults have drawn,
// so the two must be equal to the nanosecond.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPutTime   = oracle.NewCheck("L11", "times of puts")
	checkPutPhases = oracle.NewCheck("L11", "phases of puts")
	checkPutWaits  = oracle.NewCheck("L11", "phases of puts that wait")
)

// putTimeOracle judges the reports of puts.
type putTimeOracle struct {
	oracleBase
	perIncarnation[putTimeState]
}

func (*putTimeOracle) subscribe(l *oracle.Subscriptions[putTimeOracle]) {
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandPut {
			o.recordPut(e.Node, e.Command, e.Ticket)
		}
		o.recordLayerCommand(e.Node, e.Command, e.Ticket)
	})
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.recordLayerOutcome(e.Node, e.Command, e.Effect)
	})
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e world.SendingRequest) {
		o.recordRequest(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.recordReply(e.Node, e.Corr)
		if e.Conn.Channel == effects.ChannelInit {
			o.stateOf(e.Node).handshakeHost = e.Conn.Host
		}
	})
	oracle.On(l, func(o *putTimeOracle, c *oracle.Call, e *effects.Unanswered) { o.recordReply(o.nodeOf(c), e.Corr) })
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e world.StartingTransfer) { o.recordTransfer(e.Node, e.Effect) })
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e world.TransferDone) { o.recordTransferDone(e.Node, e.Transfer) })
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e pd.PutOutcome) {
		if x := o.stateOf(e.Node).find(e.Effect.Ticket); x != nil {
			x.over = true
		}
	})
	oracle.On(l, func(o *putTimeOracle, _ *oracle.Call, e world.FactObserved) { o.recordFact(e.Node, e.Effect) })
}

// putTimeState records the puts of an incarnation of a node that have no outcome yet, and its links.
type putTimeState struct {
	puts          []putTime  `snap:"skip"` // and batches of layers
	runs          []layerRun `snap:"skip"` // layerwise requests
	links         []linkTime `snap:"skip"`
	handshakeHost string     `snap:"skip"` // where the newest reply of a handshake came from
}

func (s *putTimeState) clearForReuse() {
	*s = putTimeState{puts: s.puts[:0], runs: s.runs[:0], links: s.links[:0]}
}

// find returns the record of a put, or nil.
func (s *putTimeState) find(t effects.Ticket) *putTime {
	if i := slices.IndexFunc(s.puts, func(x putTime) bool { return x.ticket == t && !x.layers }); i >= 0 {
		return &s.puts[i]
	}
	return nil
}

// findReported returns the record of the put or of the batch of layers that a fact reports, or nil.
func (s *putTimeState) findReported(e *effects.Observe) *putTime {
	if e.Fact == effects.FactPutEnded {
		return s.find(effects.Ticket(e.ID))
	}
	if e.Fact == effects.FactRegistered {
		return nil // An oracle of package register measures the times.
	}
	if i := slices.IndexFunc(s.puts, func(x putTime) bool { return x.layers && x.operation == e.ID }); i >= 0 {
		return &s.puts[i]
	}
	return nil
}

// linkOf returns the record of the link to a host, which is down at first.
func (s *putTimeState) linkOf(host string) *linkTime {
	i := slices.IndexFunc(s.links, func(x linkTime) bool { return x.host == host })
	if i < 0 {
		i = len(s.links)
		s.links = append(s.links, linkTime{host: host})
	}
	return &s.links[i]
}

// A linkTime is how long a link was up.
type linkTime struct {
	host  string
	up    bool
	since effects.Time // while up
	total effects.Duration
}

func (l *linkTime) timeUp(now effects.Time) effects.Duration {
	if l.up {
		return l.total + now.Sub(l.since)
	}
	return l.total
}

// A putTime is a put or a batch of layers, with the time that it has spent in each phase.
type putTime struct {
	ticket    effects.Ticket
	host      string // of the peer
	bytes     uint64 // of all pages
	layers    bool   // a batch of layers: there is no ticket, and no command
	command   *ops.Put
	began     effects.Time
	operation uint64       // zero: no request was sent yet
	corr      effects.Corr // of the request or of the transfer in flight; zero: none
	ended     uint64       // the step in which the newest request ended
	phase     effects.Phase
	since     effects.Time
	upBefore  effects.Duration // how long the link had been up at since
	spent     effects.PhaseTimes
	over      bool // there was an outcome
	uncertain bool // a request may be that of another put
}

// enterPhase ends the present phase of a put and begins another one.
func (or *putTimeOracle) enterPhase(n *world.Node, x *putTime, next effects.Phase) {
	now := or.w.ReadClock(n)
	up := or.stateOf(n).linkOf(x.host).timeUp(now)
	took := now.Sub(x.since)
	if x.phase == effects.PhaseQueue {
		x.spent[effects.PhaseQueue] += up - x.upBefore
		x.spent[effects.PhaseHandshake] += took - (up - x.upBefore)
	} else {
		x.spent[x.phase] += took
	}
	x.phase, x.since, x.upBefore = next, now, up
}

func (or *putTimeOracle) recordPut(n *world.Node, c *pd.Command, t effects.Ticket) {
	body, ok := c.Body.(*ops.Put)
	if !ok {
		return
	}
	state, now := or.stateOf(n), or.w.ReadClock(n)
	state.puts = slices.DeleteFunc(state.puts, func(x putTime) bool { return x.over })
	bytes := uint64(0)
	for _, p := range body.Pages {
		bytes += uint64(p.Length)
	}
	state.puts = append(state.puts, putTime{
		ticket: t, host: body.Peer.Host, bytes: bytes, command: body, began: now, since: now, phase: effects.PhaseQueue,
		upBefore: state.linkOf(body.Peer.Host).timeUp(now),
	})
}

// recordRequest records that a put requests pages or offers its pages.
func (or *putTimeOracle) recordRequest(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if c.Channel != effects.ChannelAlloc {
		return
	}
	state := or.stateOf(n)
	operation, keys, phase := uint64(0), [][]byte(nil), effects.PhaseAllocation
	if m, ok := or.facts().asRequest(body); ok {
		operation, keys = m.Ext.Operation, m.Keys
	} else if m, ok := or.facts().asOffer(body); ok {
		operation, keys, phase = m.Ext.Operation, m.Keys, effects.PhaseOffer
	}
	if len(keys) == 0 {
		return // a commit, an abort or a withdrawal
	}
	if i := slices.IndexFunc(state.puts, func(x putTime) bool { return !x.over && x.operation == operation }); i >= 0 {
		or.enterPhase(n, &state.puts[i], phase)
		state.puts[i].corr = corr
		return
	}
	if m, ok := or.facts().asRequest(body); ok && or.recordLayerRequest(n, c, corr, m) {
		return
	}
	var of *putTime
	for i := range state.puts {
		x := &state.puts[i]
		if x.over || x.operation != 0 || x.layers || x.host != c.Host || !slices.EqualFunc(x.command.Keys, keys, slices.Equal) {
			continue
		}
		if of != nil { // The engine gave two puts of the same chunks.
			of.uncertain, x.uncertain = true, true
		}
		if of == nil {
			of = x
		}
	}
	if of == nil {
		return // a put of another flow
	}
	or.enterPhase(n, of, phase)
	of.operation, of.corr = operation, corr
}

// recordReply records that a request has ended. Unless a transfer or the outcome follows in the same step, the put waits
// again.
func (or *putTimeOracle) recordReply(n *world.Node, corr effects.Corr) {
	puts := or.stateOf(n).puts
	for i := range puts {
		if x := &puts[i]; x.corr == corr && corr != 0 && !x.over {
			or.enterPhase(n, x, effects.PhaseQueue)
			x.corr, x.ended = 0, n.StepCount+1
		}
	}
}

func (or *putTimeOracle) recordTransfer(n *world.Node, e *effects.Transfer) {
	puts := or.stateOf(n).puts
	for i := range puts {
		if x := &puts[i]; x.ended == n.StepCount && x.corr == 0 && !x.over && x.phase == effects.PhaseQueue {
			or.enterPhase(n, x, effects.PhaseWire)
			x.corr = e.Corr
		}
	}
}

func (or *putTimeOracle) recordTransferDone(n *world.Node, t *world.Transfer) {
	puts := or.stateOf(n).puts
	for i := range puts {
		if x := &puts[i]; x.corr == t.Corr && x.phase == effects.PhaseWire && !x.over {
			or.enterPhase(n, x, effects.PhasePublish)
			x.corr = 0
		}
	}
}

func (or *putTimeOracle) recordFact(n *world.Node, e *effects.Observe) {
	state := or.stateOf(n)
	//exhaustive:ignore
	switch e.Fact {
	case effects.FactLinkUp:
		l := state.linkOf(state.handshakeHost)
		l.up, l.since = true, or.w.ReadClock(n)
	case effects.FactLinkDown:
		if e.Why != nil {
			l := state.linkOf(e.Why.Addr.Host)
			l.total, l.up = l.timeUp(or.w.ReadClock(n)), false
		}
	case effects.FactPutEnded:
		or.verifyReport(n, e)
	case effects.FactLayersSent:
		or.verifyLayerReport(n, e)
	case effects.FactLayersEnded:
		or.verifyRunReport(n, e)
	default:
	}
}

// verifyReport compares the report of a put with the times that the oracle has measured.
func (or *putTimeOracle) verifyReport(n *world.Node, e *effects.Observe) {
	x, r := or.stateOf(n).find(effects.Ticket(e.ID)), e.Report
	if x == nil {
		return
	}
	or.countJudged(checkPutTime)
	took := or.w.ReadClock(n).Sub(x.began)
	if r == nil || r.Began != x.began || r.Phases.Sum() != took || r.Bytes != x.bytes {
		or.fail(checkPutTime, "node %d ends put %d after %d ns and with %d bytes, and reports %+v",
			n.AsSubject(), oracle.Ticket(x.ticket), took, x.bytes, r)
		return
	}
	v := or.comparePhases(n, x, r)
	if v.void {
		or.countVoid(checkPutPhases)
		return
	}
	if or.countJudged(checkPutPhases); v.voidWaits {
		or.countVoid(checkPutWaits)
	} else {
		or.countJudged(checkPutWaits)
	}
	switch {
	case v.problem == "":
	case v.ofWaits:
		or.fail(checkPutWaits, "node %d ends put %d and reports %s", n.AsSubject(), oracle.Ticket(x.ticket), v.problem)
	default:
		or.fail(checkPutPhases, "node %d ends put %d and reports %s", n.AsSubject(), oracle.Ticket(x.ticket), v.problem)
	}
}

// A phaseVerdict is the result of comparing the phases of a report with those that the oracle has measured.
type phaseVerdict struct {
	void      bool   // nothing can be compared
	voidWaits bool   // the two phases of waiting can only be compared together
	problem   string // empty: all phases are equal
	ofWaits   bool   // the problem is a phase of waiting
}

// comparePhases compares the phases of a report, and ends the present phase of the put.
func (or *putTimeOracle) comparePhases(n *world.Node, x *putTime, r *effects.Report) (v phaseVerdict) {
	if x.uncertain || or.w.Script != nil {
		return phaseVerdict{void: true}
	}
	or.enterPhase(n, x, x.phase)
	told, measured := r.Phases, x.spent
	if pd.InfoOf(n).Cfg.Shares {
		// A link to the same host for shared chunks states its beginning and its end by the same facts.
		v.voidWaits = true
		told[effects.PhaseQueue] += told[effects.PhaseHandshake]
		measured[effects.PhaseQueue] += measured[effects.PhaseHandshake]
		told[effects.PhaseHandshake], measured[effects.PhaseHandshake] = 0, 0
	}
	for p := range effects.PhaseCount {
		if told[p] == measured[p] {
			continue
		}
		phase := effects.Phase(p)
		v.problem = fmt.Sprintf("%d ns of its time as %s, and %d ns were", told[p], phase, measured[p])
		v.ofWaits = phase == effects.PhaseHandshake || phase == effects.PhaseQueue
		return v
	}
	return v
}

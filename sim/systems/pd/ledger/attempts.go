package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A put, a recall and a bring send a request again only a stated number of times, and fail for the lack of a reply only
// when that many requests were sent. Each retry of a request carries a greater attempt number than the attempt before,
// so that the receiver can distinguish a delayed message from a new attempt.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkAttempts     = oracle.NewCheck("S24", "numbers of attempts")
	checkAttemptsMost = oracle.NewCheck("S18", "attempts of a put, at most")
	checkExpiredEarly = oracle.NewCheck("L1", "puts that expire before their time")
)

// attemptOracle judges the numbers of attempts (S24).
type attemptOracle struct {
	oracleBase
	perIncarnation[attemptState]
}

func (*attemptOracle) subscribe(l *oracle.Subscriptions[attemptOracle]) {
	oracle.On(l, func(o *attemptOracle, _ *oracle.Call, e world.SendingRequest) {
		o.verifyAttempt(e.Node, e.Conn, e.Body)
	})
	oracle.On(l, func(o *attemptOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandPut {
			o.recordPut(e.Node, e.Command, e.Ticket)
		}
	})
	oracle.On(l, func(o *attemptOracle, _ *oracle.Call, e pd.PutOutcome) { o.verifyExpired(e.Node, e.Effect, e.Command) })
}

// attemptState records the requests that one incarnation of a node has sent.
type attemptState struct {
	requests []attemptRecord `snap:"skip"`
	sent     []int           `snap:"skip"` // by receiver: requests for pages and offers
	puts     []putStart      `snap:"skip"` // puts without an outcome
}

func (s *attemptState) clearForReuse() {
	*s = attemptState{requests: s.requests[:0], sent: s.sent[:0], puts: s.puts[:0]}
}

// putStart is a put, with the number of requests to its receiver that were sent before the put arrived.
type putStart struct {
	ticket     effects.Ticket
	sentBefore int
}

// countSent returns the count of the requests that were sent to a receiver.
func (s *attemptState) countSent(receiver int32) *int {
	for len(s.sent) <= int(receiver) {
		s.sent = append(s.sent, 0)
	}
	return &s.sent[receiver]
}

// recordPut records that a put arrives.
func (or *attemptOracle) recordPut(n *world.Node, c *pd.Command, t effects.Ticket) {
	if j := &or.w.Jobs[c.Job]; !j.PlainTo {
		state := or.stateOf(n)
		state.puts = append(state.puts, putStart{t, *state.countSent(j.Receiver)})
	}
}

// verifyExpired checks that a put which pushes ends as expired before its time only when its attempts are used up: as
// many requests were sent to the receiver since the put arrived.
func (or *attemptOracle) verifyExpired(n *world.Node, e *effects.Deliver, c *pd.Command) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.puts, func(p putStart) bool { return p.ticket == e.Ticket })
	if i < 0 {
		return
	}
	sent := *state.countSent(or.w.Jobs[c.Job].Receiver) - state.puts[i].sentBefore
	state.puts = slices.Delete(state.puts, i, i+1)
	if e.Code != effects.Expired || n.OffersChunks || e.Why == nil || e.Why.Stage != effects.StageAsk {
		return
	}
	attempts := int(cmp.Or(pd.InfoOf(n).Cfg.Tuning.AttemptsMax, 3))
	if or.countJudged(checkExpiredEarly); c.TimeLeft(or.w, n) > 0 && sent < attempts {
		or.fail(checkExpiredEarly, "node %d ends put %d as expired before its time, after %d requests to its receiver; %d are to be tried",
			n.AsSubject(), oracle.Ticket(e.Ticket), sent, attempts)
	}
}

// attemptRecord records an operation for which a request was sent, and the number of the last attempt.
type attemptRecord struct {
	operation uint64
	attempt   uint32
}

// verifyAttempt checks a request when it is sent.
func (or *attemptOracle) verifyAttempt(n *world.Node, c *world.Conn, body []byte) {
	if c.Server < 0 || c.Channel != effects.ChannelAlloc {
		return
	}
	operation, attempt, keys := uint64(0), uint32(0), 0
	if offer, ok := or.facts().asOffer(body); ok {
		operation, attempt, keys = offer.Ext.Operation, offer.Ext.Attempt, len(offer.Keys)
	} else if request, ok := or.facts().asRequest(body); ok && request.HasExt {
		operation, attempt, keys = request.Ext.Operation, request.Ext.Attempt, len(request.Keys)
	}
	if keys == 0 {
		return // The message takes back, or ends, what other messages requested.
	}
	if operation == 0 {
		return
	}
	state := or.stateOf(n)
	*state.countSent(c.Server)++
	or.verifyMost(n, operation, attempt)
	i := slices.IndexFunc(state.requests, func(x attemptRecord) bool { return x.operation == operation })
	if i < 0 {
		state.requests = append(state.requests, attemptRecord{operation, attempt})
		return
	}
	x := &state.requests[i]
	if or.countJudged(checkAttempts); attempt <= x.attempt {
		or.fail(checkAttempts, "node %d retries operation %d as attempt %d after attempt %d",
			n.AsSubject(), operation, attempt, x.attempt)
	}
	x.attempt = attempt
}

// verifyMost checks that a request is not sent too often. Where several requests may be in flight, the end of their
// connection counts as a failure of the oldest request only. An offer may be made once more to compare the clocks anew.
func (or *attemptOracle) verifyMost(n *world.Node, operation uint64, attempt uint32) {
	cfg := &pd.InfoOf(n).Cfg
	if cfg.Window > 1 {
		or.countVoid(checkAttemptsMost)
		return
	}
	most := cmp.Or(cfg.Tuning.AttemptsMax, 3)
	if n.OffersChunks {
		most++
	}
	if or.countJudged(checkAttemptsMost); attempt > most {
		or.fail(checkAttemptsMost, "node %d makes attempt %d of operation %d; %d are allowed", n.AsSubject(), attempt, operation, most)
	}
}

package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// Each retry of a request carries a greater attempt number than the attempt before, so that the receiver can
// distinguish a delayed message from a new attempt.

var checkAttempts = oracle.NewCheck("S24", "numbers of attempts")

// attemptOracle judges the numbers of attempts (S24).
type attemptOracle struct {
	oracleBase
	perIncarnation[attemptState]
}

func (*attemptOracle) subscribe(l *oracle.Subscriptions[attemptOracle]) {
	oracle.On(l, func(o *attemptOracle, _ *oracle.Call, e world.SendingRequest) {
		o.verifyAttempt(e.Node, e.Conn, e.Body)
	})
}

// attemptState records the requests that one incarnation of a node has sent.
type attemptState struct {
	requests []attemptRecord `snap:"skip"`
}

func (s *attemptState) clearForReuse() { *s = attemptState{requests: s.requests[:0]} }

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

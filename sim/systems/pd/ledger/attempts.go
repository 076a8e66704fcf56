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

// attemptsOracle judges the numbers of attempts (S24).
type attemptsOracle struct {
	judge
	perLife[attemptsLife]
}

func (*attemptsOracle) listen(l *oracle.Listen[attemptsOracle]) {
	oracle.On(l, func(o *attemptsOracle, _ *oracle.Call, e world.Sending) { o.sent(e.Node, e.Conn, e.Body) })
}

// attemptsLife records the requests that one incarnation of a node has sent.
type attemptsLife struct {
	asked []attempted `snap:"skip"`
}

func (s *attemptsLife) startReply() { *s = attemptsLife{asked: s.asked[:0]} }

// attempted records an operation for which a request was sent, and the number of the last attempt.
type attempted struct {
	operation uint64
	attempt   uint32
}

// sent checks a request when it is sent.
func (or *attemptsOracle) sent(n *world.Node, c *world.Conn, body []byte) {
	if c.Server < 0 || c.Channel != effects.ChannelAlloc {
		return
	}
	operation, attempt, keys := uint64(0), uint32(0), 0
	if offer, is := or.truth().asOffer(body); is {
		operation, attempt, keys = offer.Ext.Operation, offer.Ext.Attempt, len(offer.Keys)
	} else if ask, is := or.truth().asRequest(body); is && ask.HasExt {
		operation, attempt, keys = ask.Ext.Operation, ask.Ext.Attempt, len(ask.Keys)
	}
	if keys == 0 {
		return // The message takes back, or ends, what other messages requested.
	}
	if operation == 0 {
		return
	}
	my := or.at(n)
	i := slices.IndexFunc(my.asked, func(x attempted) bool { return x.operation == operation })
	if i < 0 {
		my.asked = append(my.asked, attempted{operation, attempt})
		return
	}
	x := &my.asked[i]
	if or.judged(checkAttempts); attempt <= x.attempt {
		or.fail(checkAttempts, "node %d puts the question of operation %d again as attempt %d, after attempt %d",
			n.It(), operation, attempt, x.attempt)
	}
	x.attempt = attempt
}

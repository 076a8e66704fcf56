package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// Each time that a question is put again it says so by a number that has grown: by that who is asked tells what comes
// late from what comes anew.

var checkAttempts = oracle.NewCheck("S24", "numbers of attempts")

// attemptsOracle judges those numbers.
type attemptsOracle struct {
	judge
	perLife[attemptsLife]
}

func (*attemptsOracle) listen(l *oracle.Listen[attemptsOracle]) {
	oracle.On(l, func(o *attemptsOracle, _ *oracle.Call, e world.Sending) { o.sent(e.Node, e.Conn, e.Body) })
}

type attemptsLife struct {
	asked []attempted `snap:"skip"`
}

func (s *attemptsLife) empty() { *s = attemptsLife{asked: s.asked[:0]} }

// An attempted is a question that was put, and with which number last.
type attempted struct {
	operation uint64
	attempt   uint32
}

// sent checks a question as it leaves.
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
		return // It takes back, or ends, what others asked for.
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

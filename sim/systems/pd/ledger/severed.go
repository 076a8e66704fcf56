package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// A connection that a node uses only to send requests to a peer is opened again when there is more to request. The end
// of such a connection is not the end of the peer: the link, and everything else that goes over it, goes on.

var checkSevered = oracle.NewCheck("S18", "links whose connections end")

// severedOracle judges what ends together with a connection (S18).
type severedOracle struct {
	judge
	perLife[severedLife]
}

func (*severedOracle) listen(l *oracle.Listen[severedOracle]) {
	oracle.On(l, func(o *severedOracle, _ *oracle.Call, e world.Stepping) { o.step(e.Node, e.Event) })
	oracle.On(l, func(o *severedOracle, _ *oracle.Call, e world.Observed) {
		if e.Effect.Fact == effects.FactLinkDown {
			o.down(e.Node, e.Effect.Code)
		}
	})
}

// severedLife records what the current step of one incarnation of a node is about.
type severedLife struct {
	lane bool `snap:"scratch"` // this step is about the end of a connection for requests
}

func (s *severedLife) startReply() { *s = severedLife{} }

// step records what a step is about.
func (or *severedOracle) step(n *world.Node, ev effects.Event) {
	my := or.at(n)
	my.lane = false
	if lost, ok := ev.(*effects.ConnLost); ok {
		c := or.w.ConnOf(uint64(lost.Conn))
		if my.lane = c != nil && c.Client == n.ID && c.Channel != effects.ChannelInit; my.lane {
			or.judged(checkSevered)
		}
	}
}

// down checks that a link which ends as lost did not end because of such a connection.
func (or *severedOracle) down(n *world.Node, code effects.Code) {
	if or.at(n).lane && code == effects.PeerLost {
		or.fail(checkSevered, "node %d gives a link up because a connection has ended on which it only asks", n.It())
	}
}

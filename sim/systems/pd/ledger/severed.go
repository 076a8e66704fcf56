package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// If a node uses a connection only to send requests to a peer, the node opens a new connection when there is a further
// request. The end of that connection is not the end of the peer: the link stays, and everything that uses the link
// goes on.

var checkSevered = oracle.NewCheck("S18", "links whose connections end")

// severedOracle judges that links survive the end of connections for requests (S18).
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

// severedLife records whether the current step of a node handles the end of a connection.
type severedLife struct {
	lane bool `snap:"scratch"` // this step is about the end of a connection for requests
}

func (s *severedLife) startReply() { *s = severedLife{} }

// step records whether a step handles the end of a connection for requests.
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

// down checks that a link which ends as lost does not end in the step that handles the end of a connection for
// requests.
func (or *severedOracle) down(n *world.Node, code effects.Code) {
	if or.at(n).lane && code == effects.PeerLost {
		or.fail(checkSevered, "node %d gives a link up because a connection has ended on which it only asks", n.It())
	}
}

package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// If a node uses a connection only to send requests to a peer, the node opens a new connection when there is a further
// request. The end of that connection is not the end of the peer: the link stays, and everything that uses the link
// goes on.

var checkLinkSurvives = oracle.NewCheck("S18", "links that survive the end of a connection")

// connLossOracle judges that links survive the end of connections for requests (S18).
type connLossOracle struct {
	oracleBase
	perIncarnation[connLossState]
}

func (*connLossOracle) subscribe(l *oracle.Subscriptions[connLossOracle]) {
	oracle.On(l, func(o *connLossOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordStep(e.Node, e.Event) })
	oracle.On(l, func(o *connLossOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLinkDown {
			o.verifyLinkDown(e.Node, e.Effect.Code)
		}
	})
}

// connLossState records whether the current step of a node handles the end of a connection.
type connLossState struct {
	connLost bool `snap:"scratch"` // this step is about the end of a connection for requests
}

func (s *connLossState) clearForReuse() { *s = connLossState{} }

// recordStep records whether a step handles the end of a connection for requests.
func (or *connLossOracle) recordStep(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	state.connLost = false
	if lost, ok := ev.(*effects.ConnLost); ok {
		c := or.w.ConnOf(uint64(lost.Conn))
		if state.connLost = c != nil && c.Client == n.ID && c.Channel != effects.ChannelInit; state.connLost {
			or.countJudged(checkLinkSurvives)
		}
	}
}

// verifyLinkDown checks that a link which ends as lost does not end in the step that handles the end of a connection
// for requests.
func (or *connLossOracle) verifyLinkDown(n *world.Node, code effects.Code) {
	if or.stateOf(n).connLost && code == effects.PeerLost {
		or.fail(checkLinkSurvives, "node %d drops a link because a connection for requests has ended", n.AsSubject())
	}
}

package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

var checkIdle = oracle.NewCheck("L7", "requests that expire although the layers could be sent")

// idleState holds the pending work and the links of each sender.
type idleState struct {
	nodes map[oracle.Node]*nodeActivity
}

type nodeActivity struct {
	inFlight map[effects.Corr]bool // sends, transfers, opens and imports in progress
	linksUp  map[effects.Incarnation]bool
	isIdle   bool // at the last tick there was no event to process and no pending work, and all links were up
}

func (s *idleState) activityOf(c *oracle.Call) *nodeActivity {
	if s.nodes == nil {
		s.nodes = map[oracle.Node]*nodeActivity{}
	}
	x := s.nodes[c.Node()]
	if x == nil {
		x = &nodeActivity{inFlight: map[effects.Corr]bool{}, linksUp: map[effects.Incarnation]bool{}}
		s.nodes[c.Node()] = x
	}
	return x
}

// idleOracle checks requests that expire: a sender with a link to the receiver must not let a request expire while
// nothing is in progress that could send the layers.
var idleOracle = oracle.New("layers not idle", "a sender with layers and a link sends them", func(l *oracle.Subscriptions[idleState]) {
	begins := func(s *idleState, c *oracle.Call, corr effects.Corr) { s.activityOf(c).inFlight[corr] = true }
	ends := func(s *idleState, c *oracle.Call, corr effects.Corr) {
		delete(s.activityOf(c).inFlight, corr)
		s.activityOf(c).isIdle = false
	}
	clearIdle[*effects.Command](l)
	clearIdle[*effects.ConnLost](l)
	clearIdle[*effects.SendDone](l)
	clearIdle[*effects.LinkLost](l)
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Send) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Open) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Import) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Transfer) { begins(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Replied) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Unanswered) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Opened) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Imported) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Settled) { ends(s, c, e.Corr) })
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.TransferDone) {
		if s.activityOf(c).isIdle = false; e.Settled {
			ends(s, c, e.Corr)
		}
	})
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Observe) {
		if x := s.activityOf(c); e.Fact == effects.FactLinkUp {
			x.linksUp[e.Peer] = true
		} else if e.Fact == effects.FactLinkDown {
			delete(x.linksUp, e.Peer)
		}
	})
	oracle.On(l, func(s *idleState, c *oracle.Call, _ *effects.Tick) {
		w, x := pd.ClusterOf(c), s.activityOf(c)
		x.isIdle = !w.Nodes[c.Node()].Busy && len(x.inFlight) == 0 && len(x.linksUp) == countReceivers(w)
	})
	oracle.On(l, func(s *idleState, c *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(c)
		n := w.Nodes[c.Node()]
		o := layerCommand(w, n, e.Ticket)
		if o == nil || o.Kind != wantFinish || e.Code != effects.Expired {
			return
		}
		if c.CountJudged(checkIdle); s.activityOf(c).isIdle {
			c.FailCheck(checkIdle, "node %d let request %q expire with a link and nothing in progress",
				n.AsSubject(), oracle.Request(w.Jobs[o.Job].Name))
		}
	})
	oracle.On(l, func(s *idleState, c *oracle.Call, _ oracle.IncarnationEnded) { delete(s.nodes, c.Node()) })
})

// clearIdle makes an event clear the mark of the last tick.
func clearIdle[E effects.Event](l *oracle.Subscriptions[idleState]) {
	oracle.On(l, func(s *idleState, c *oracle.Call, _ E) { s.activityOf(c).isIdle = false })
}

package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A command fails because nobody listens at an address only if a connection to that address could not be opened while
// the command waited. What was learned before may be wrong by now: the peer may have been started since (L1). Commands
// that fail with the link to their peer are judged elsewhere.

// isLinkAddr reports whether an address is that at which a peer accepts links. A peer that is no node, such as an engine
// without our extensions, is named by the address of its link whatever connection failed.
func isLinkAddr(a effects.Addr) bool {
	n := world.NodeOfHost(a.Host)
	return n < 0 || a.Port == world.AddressOf(n, effects.ChannelInit).Port
}

var checkOpenFailed = oracle.NewCheck("L1", "commands that end because nobody listens at an address")

// openFailureOracle judges the commands that end as unreachable.
type openFailureOracle struct {
	oracleBase
	perIncarnation[openFailureState]
}

func (*openFailureOracle) subscribe(l *oracle.Subscriptions[openFailureOracle]) {
	oracle.On(l, func(o *openFailureOracle, c *oracle.Call, e *effects.Open) {
		s := o.stateOf(o.nodeOf(c))
		s.opening = append(s.opening, openingConn{e.Corr, e.Addr})
	})
	oracle.On(l, func(o *openFailureOracle, c *oracle.Call, e *effects.Opened) { o.recordOpened(o.nodeOf(c), e) })
	oracle.On(l, func(o *openFailureOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.verifyCause(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *openFailureOracle, _ *oracle.Call, e stepCounted) {
		if !e.node.Busy {
			o.stateOf(e.node).idleStep = e.node.StepCount
		}
	})
}

// openFailureState records the connections of an incarnation of a node.
type openFailureState struct {
	opening  []openingConn `snap:"skip"`
	failures []openFailure `snap:"skip"`
	idleStep uint64        `snap:"skip"` // the newest step after which the machine had no work left
}

func (s *openFailureState) clearForReuse() {
	*s = openFailureState{opening: s.opening[:0], failures: s.failures[:0]}
}

// openingConn is a connection that is being opened.
type openingConn struct {
	corr effects.Corr
	addr effects.Addr
}

// openFailure is the newest failure to open a connection to an address.
type openFailure struct {
	addr effects.Addr
	step uint64 // the step in which the machine was told
}

// recordOpened records the result of an attempt to open a connection.
func (or *openFailureOracle) recordOpened(n *world.Node, e *effects.Opened) {
	s := or.stateOf(n)
	for i, x := range s.opening {
		if x.corr != e.Corr {
			continue
		}
		s.opening[i] = s.opening[len(s.opening)-1]
		s.opening = s.opening[:len(s.opening)-1]
		if e.Code != effects.OK {
			s.recordFailure(x.addr, n.StepCount+1)
		}
		return
	}
}

// recordFailure records a failure to open a connection.
func (s *openFailureState) recordFailure(addr effects.Addr, step uint64) {
	for i := range s.failures {
		if s.failures[i].addr == addr {
			s.failures[i].step = step
			return
		}
	}
	s.failures = append(s.failures, openFailure{addr, step})
}

// verifyCause judges a command that ends because nobody listens at an address. A machine that had work left after each
// step since the failure may only now come to the command.
func (or *openFailureOracle) verifyCause(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code != effects.Unreachable || e.Why == nil || e.Why.Stage != effects.StageConnect || e.Why.Addr == (effects.Addr{}) ||
		isLinkAddr(e.Why.Addr) {
		return
	}
	or.countJudged(checkOpenFailed)
	s := or.stateOf(n)
	for _, x := range s.failures {
		if x.addr == e.Why.Addr && (x.step >= c.ReceivedStep || s.idleStep < x.step) {
			return
		}
	}
	or.fail(checkOpenFailed, "node %d ends ticket %d (%s) because nobody listens at %s, and no connection to there has failed since the "+
		"command was given", n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Why.Addr)
}

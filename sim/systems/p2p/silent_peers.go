package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// A circuit breaker opens for a peer that answers no hello. Meanwhile an engine that wants chunks of the peer does not
// wait for the whole timeout: the Bring ends as a miss as soon as the peer is given up, or at once.

var checkSilent = oracle.NewCheck("L3", "Brings from peers that left a lookup unanswered")

var checkBreakerTime = oracle.NewCheck("L4", "circuit breakers of peers, and how long they are open")

var checkIntroduced = oracle.NewCheck("L3", "Brings from peers that do not know the sender")

var checkBreakerOpen = oracle.NewCheck("L3", "Brings from peers that answer nothing")

// pendingWork records the pending work of the nodes in their current incarnations.
type pendingWork struct {
	brings        []pendingBring    `snap:"skip"` // Bring commands without an outcome
	handshakes    []handshake       `snap:"skip"` // handshakes, judged by connections; an ended handshake may remain longer
	linkLosses    []linkLoss        `snap:"skip"`
	silentPeers   []peerTime        `snap:"skip"` // peers that let a lookup time out and have answered none since
	lookups       []peerLookup      `snap:"skip"` // lookup connections and pending lookups
	missedLookups []peerTime        `snap:"skip"` // peers that left the newest lookup without a reply
	trials        []peerTime        `snap:"skip"` // the start of the last Bring per peer that the breaker let pass
	notIntroduced notIntroducedStep `snap:"skip"` // the newest reply that the owner of chunks does not know the sender
}

// notIntroducedStep is the step of a node in which a P2PNotIntroduced reply arrived.
type notIntroducedStep struct {
	node oracle.Node
	step uint64
}

// peerTime is a peer and a time.
type peerTime struct {
	node int32
	host string
	at   effects.Time // by the node's clock
}

// A peerLookup is a connection that is being opened (corr and host), an open connection (conn and host), or a lookup in
// flight on a connection (all fields).
type peerLookup struct {
	node int32
	host string
	corr effects.Corr
	conn effects.Conn
}

// pendingBring is a Bring command without an outcome.
type pendingBring struct {
	node     int32
	ticket   effects.Ticket
	from     effects.Addr
	deadline effects.Time // deadline, by the clock of the node
	beganAt  effects.Time // by the clock of the node
}

// handshake is a handshake in progress.
type handshake struct {
	node int32
	to   effects.Addr
	corr effects.Corr
	conn effects.Conn
}

// linkLoss is the last time at which a node gave a peer up.
type linkLoss struct {
	node int32
	at   effects.Time
}

// silentPeerOracle checks the Brings from peers that do not answer.
var silentPeerOracle = oracle.New("silent", "a Bring from a peer that answers nothing does not wait for its whole timeout",
	func(l *oracle.Subscriptions[pendingWork]) {
		followHandshakes(l)
		followLookups(l)
		oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Command) {
			w := pd.ClusterOf(call)
			n := w.Nodes[call.Node()]
			c := w.CommandOf(n, e.Ticket)
			if n.Custom || c == nil || c.Kind != wantBring {
				return
			}
			from := c.Body.(*ops.Bring).From
			s.brings = append(s.brings, pendingBring{
				n.ID, e.Ticket, effects.Addr{Host: from.Host, Port: from.InitPort},
				call.LocalTime().Add(pd.InfoOf(n).Cfg.BringTimeout), call.LocalTime(),
			})
		})
		oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Deliver) {
			node := int32(call.Node())
			i := slices.IndexFunc(s.brings, func(b pendingBring) bool { return b.node == node && b.ticket == e.Ticket })
			if i < 0 {
				return
			}
			b := s.brings[i]
			s.brings = slices.Delete(s.brings, i, i+1)
			if e.Code != effects.BackedOff {
				s.recordTrial(&b)
			}
			s.checkIntroduction(call, &b, e)
			s.checkBreaker(call, &b, e)
			s.checkSilentPeer(call, &b, e)
			if e.Code != effects.Expired || e.Why == nil || !isHandshake(e.Why.Stage) || b.from == (effects.Addr{}) {
				return
			}
			call.CountJudged(checkBreakerOpen)
			tries := slices.ContainsFunc(s.handshakes, func(a handshake) bool { return a.node == node && a.to == b.from })
			late := pd.ClusterOf(call).Nodes[node].Busy || slices.Contains(s.linkLosses, linkLoss{node, call.Now()}) // Handled only now.
			if call.LocalTime() >= b.deadline && !tries && !late {
				call.FailCheck(checkBreakerOpen, "node %d lets ticket %d wait for its whole timeout, and the peer's circuit breaker is open",
					oracle.Node(node), oracle.Ticket(b.ticket))
			}
		})
		oracle.On(l, func(s *pendingWork, call *oracle.Call, _ oracle.IncarnationEnded) {
			node := int32(call.Node())
			s.brings = slices.DeleteFunc(s.brings, func(b pendingBring) bool { return b.node == node })
			s.handshakes = slices.DeleteFunc(s.handshakes, func(a handshake) bool { return a.node == node })
			s.silentPeers = slices.DeleteFunc(s.silentPeers, func(f peerTime) bool { return f.node == node })
			s.lookups = slices.DeleteFunc(s.lookups, func(l peerLookup) bool { return l.node == node })
			s.missedLookups = slices.DeleteFunc(s.missedLookups, func(f peerTime) bool { return f.node == node })
			s.trials = slices.DeleteFunc(s.trials, func(f peerTime) bool { return f.node == node })
			s.linkLosses = slices.DeleteFunc(s.linkLosses, func(g linkLoss) bool { return g.node == node })
		})
	})

// recordTrial records a Bring that the breaker let pass. The Bring may be the trial of the peer.
func (s *pendingWork) recordTrial(b *pendingBring) {
	i := slices.IndexFunc(s.trials, func(f peerTime) bool { return f.node == b.node && f.host == b.from.Host })
	if i < 0 {
		i, s.trials = len(s.trials), append(s.trials, peerTime{node: b.node, host: b.from.Host})
	}
	s.trials[i].at = max(s.trials[i].at, b.beganAt)
}

// isHandshake reports whether a stage comes before the end of the handshake with the peer.
func isHandshake(s effects.Stage) bool { return s == effects.StageConnect || s == effects.StageHello }

// checkIntroduction checks a Bring whose chunk owner does not know the sender, because the owner has restarted or has
// dropped the inbound peer. The two nodes must shake hands again, and the Bring must not end as Refused.
func (s *pendingWork) checkIntroduction(call *oracle.Call, b *pendingBring, e *effects.Deliver) {
	if e.Code == effects.OK {
		return
	}
	n := pd.ClusterOf(call).Nodes[call.Node()]
	if call.CountJudged(checkIntroduced); s.notIntroduced == (notIntroducedStep{call.Node(), n.StepCount}) && e.Code == effects.Refused {
		call.FailCheck(checkIntroduced, "node %d ends ticket %d as refused, because the peer does not know the sender",
			oracle.Node(call.Node()), oracle.Ticket(b.ticket))
	}
}

// checkBreaker checks a Bring that ends because the circuit breaker of the peer is open. The peer must have left a
// lookup unanswered and must have answered none since, and the breaker may stay open for at most sixteen lookup
// timeouts, which is the documented limit. The check does not count earlier failed trials, because a trial may end with
// the timeout of the engine. A trial begins with a Bring, which may first have to make a link or a connection. All
// other Brings are held back for a lookup timeout after that, or until the lookup of the trial ends.
func (s *pendingWork) checkBreaker(call *oracle.Call, b *pendingBring, e *effects.Deliver) {
	if e.Code != effects.BackedOff || b.from == (effects.Addr{}) {
		return
	}
	node, host := int32(call.Node()), b.from.Host
	timeout := pd.InfoOf(pd.ClusterOf(call).Nodes[call.Node()]).Cfg.LookupTimeout
	call.CountJudged(checkBreakerTime)
	for i := range s.brings {
		if s.brings[i].node == node && s.brings[i].from == b.from {
			s.recordTrial(&s.brings[i])
		}
	}
	if slices.ContainsFunc(s.trials, func(f peerTime) bool {
		return f.node == node && f.host == host && call.LocalTime().Sub(f.at) <= timeout
	}) || slices.ContainsFunc(s.lookups, func(x peerLookup) bool {
		return x.node == node && x.host == host && x.conn != 0 && x.corr != 0 // This lookup may be the trial.
	}) {
		return
	}
	if !slices.ContainsFunc(s.missedLookups, func(f peerTime) bool {
		return f.node == node && f.host == host && call.LocalTime().Sub(f.at) <= 16*timeout
	}) {
		call.FailCheck(checkBreakerTime, "node %d ends ticket %d because the peer's circuit breaker is open, and the peer left no lookup "+
			"unanswered, or too long ago", oracle.Node(call.Node()), oracle.Ticket(b.ticket))
	}
}

// checkSilentPeer checks Brings after a lookup timed out. The rank must not send the peer another lookup for a further
// lookup timeout. Otherwise each request would wait for a frozen peer, which keeps its connections and sends nothing.
func (s *pendingWork) checkSilentPeer(call *oracle.Call, b *pendingBring, e *effects.Deliver) {
	expired := e.Code == effects.Expired && e.Why != nil && e.Why.Stage == effects.StageAsk &&
		e.Why.Field == link.NoReplyReason(0).Field
	x := peerTime{int32(call.Node()), b.from.Host, call.LocalTime()}
	i := slices.IndexFunc(s.silentPeers, func(f peerTime) bool { return f.node == x.node && f.host == x.host })
	if i < 0 {
		if expired {
			s.silentPeers = append(s.silentPeers, x)
		}
		return
	}
	// A Bring that began before the breaker opened says nothing about the time since.
	silentSince := s.silentPeers[i].at
	if b.beganAt > silentSince && b.beganAt < silentSince.Add(pd.InfoOf(pd.ClusterOf(call).Nodes[call.Node()]).Cfg.LookupTimeout) {
		if call.CountJudged(checkSilent); expired {
			call.FailCheck(checkSilent, "node %d lets ticket %d wait for a peer that has just left a lookup unanswered",
				oracle.Node(call.Node()), oracle.Ticket(b.ticket))
		}
	}
	if expired && b.beganAt > silentSince {
		s.silentPeers[i] = x
	}
}

// followLookups records which peers answer lookups.
func followLookups(l *oracle.Subscriptions[pendingWork]) {
	find := func(s *pendingWork, call *oracle.Call, matches func(peerLookup) bool) int {
		return slices.IndexFunc(s.lookups, func(x peerLookup) bool { return x.node == int32(call.Node()) && matches(x) })
	}
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Open) {
		if e.Channel == effects.ChannelLookup {
			s.lookups = append(s.lookups, peerLookup{int32(call.Node()), e.Addr.Host, e.Corr, 0})
		}
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Opened) {
		if i := find(s, call, func(x peerLookup) bool { return x.conn == 0 && x.corr == e.Corr }); i >= 0 {
			s.lookups[i].corr, s.lookups[i].conn = 0, e.Conn
		}
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Send) {
		if i := find(s, call, func(x peerLookup) bool { return x.corr == 0 && x.conn == e.Conn }); i >= 0 {
			s.lookups = append(s.lookups, peerLookup{int32(call.Node()), s.lookups[i].host, e.Corr, e.Conn})
		}
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Unanswered) {
		node := int32(call.Node())
		if i := find(s, call, func(x peerLookup) bool { return x.conn != 0 && x.corr == e.Corr }); i >= 0 {
			host := s.lookups[i].host
			s.missedLookups = slices.DeleteFunc(s.missedLookups, func(f peerTime) bool { return f.node == node && f.host == host })
			s.missedLookups = append(s.missedLookups, peerTime{node, host, call.LocalTime()})
		}
		s.lookups = slices.DeleteFunc(s.lookups, func(x peerLookup) bool { return x.node == node && x.corr == e.Corr })
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Replied) {
		var m protocol.P2PErrorMsg
		if protocol.HasTag(e.Body, protocol.TagP2PErrorMsg, &pd.WireLimits) && m.Decode(e.Body, &pd.WireLimits) == nil &&
			m.Code == protocol.P2PNotIntroduced {
			s.notIntroduced = notIntroducedStep{call.Node(), pd.ClusterOf(call).Nodes[call.Node()].StepCount + 1}
		}
		i := find(s, call, func(x peerLookup) bool { return x.conn != 0 && x.corr == e.Corr })
		if i < 0 {
			return
		}
		node, host := s.lookups[i].node, s.lookups[i].host
		s.lookups = slices.Delete(s.lookups, i, i+1)
		s.silentPeers = slices.DeleteFunc(s.silentPeers, func(f peerTime) bool { return f.node == node && f.host == host })
		s.missedLookups = slices.DeleteFunc(s.missedLookups, func(f peerTime) bool { return f.node == node && f.host == host })
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Close) {
		s.lookups = slices.DeleteFunc(s.lookups, func(x peerLookup) bool {
			return x.node == int32(call.Node()) && x.conn == e.Conn && x.corr == 0
		})
	})
}

// followHandshakes records the handshakes in progress, and the times at which a node gave a peer up.
func followHandshakes(l *oracle.Subscriptions[pendingWork]) {
	removeConn := func(s *pendingWork, call *oracle.Call, conn effects.Conn) {
		s.handshakes = slices.DeleteFunc(s.handshakes, func(a handshake) bool {
			return a.node == int32(call.Node()) && a.conn == conn
		})
	}
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Open) {
		if e.Channel == effects.ChannelInit {
			s.handshakes = append(s.handshakes, handshake{int32(call.Node()), e.Addr, e.Corr, 0})
		}
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Opened) {
		i := slices.IndexFunc(s.handshakes, func(a handshake) bool {
			return a.node == int32(call.Node()) && a.conn == 0 && a.corr == e.Corr
		})
		switch {
		case i < 0:
		case e.Code == effects.OK:
			s.handshakes[i].conn = e.Conn
		default:
			s.handshakes = slices.Delete(s.handshakes, i, i+1)
		}
	})
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.ConnLost) { removeConn(s, call, e.Conn) })
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Close) { removeConn(s, call, e.Conn) })
	oracle.On(l, func(s *pendingWork, call *oracle.Call, e *effects.Observe) {
		if e.Fact == effects.FactLinkDown {
			node := int32(call.Node())
			s.linkLosses = slices.DeleteFunc(s.linkLosses, func(g linkLoss) bool { return g.node == node })
			s.linkLosses = append(s.linkLosses, linkLoss{node, call.Now()})
		}
	})
}

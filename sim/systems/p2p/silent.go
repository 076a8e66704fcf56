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

var checkFrozen = oracle.NewCheck("L3", "chunks of peers that left a question unanswered")

var checkAloneFor = oracle.NewCheck("L4", "peers that are left alone, and for how long")

var checkIntroduced = oracle.NewCheck("L3", "chunks of peers that do not know who asks")

var checkLeftAlone = oracle.NewCheck("L3", "chunks of peers that answer nothing")

// waiting records the pending work of the nodes in their current incarnations.
type waiting struct {
	brings   []bringing `snap:"skip"` // Bring commands without an outcome
	attempts []attempt  `snap:"skip"` // handshakes, judged by connections; an ended handshake may remain longer
	given    []givenUp  `snap:"skip"`
	frozen   []frozen   `snap:"skip"` // peers that let a lookup time out and have answered none since
	lookups  []lookup   `snap:"skip"` // lookup connections and pending lookups
	missed   []frozen   `snap:"skip"` // peers that left the newest lookup without a reply
	tried    []frozen   `snap:"skip"` // the start of the last Bring per peer that the breaker let pass
	strange  strange    `snap:"skip"` // the newest reply that the owner of chunks does not know the sender
}

// strange is the step of a node in which a P2PNotIntroduced reply arrived.
type strange struct {
	node oracle.Node
	step uint64
}

// frozen is a peer and a time.
type frozen struct {
	node int32
	host string
	at   effects.Time // by the node's clock
}

// A lookup is a connection that is being opened (corr and host), an open connection (conn and host), or a lookup in
// flight on a connection (all fields).
type lookup struct {
	node int32
	host string
	corr effects.Corr
	conn effects.Conn
}

// bringing is a Bring command without an outcome.
type bringing struct {
	node   int32
	ticket effects.Ticket
	from   effects.Addr
	until  effects.Time // deadline, by the clock of the node
	began  effects.Time // by the clock of the node
}

// attempt is a handshake in progress.
type attempt struct {
	node int32
	to   effects.Addr
	corr effects.Corr
	conn effects.Conn
}

// givenUp is the last time at which a node gave a peer up.
type givenUp struct {
	node int32
	at   effects.Time
}

// silent checks the Brings from peers that do not answer.
var silent = oracle.Of("silent", "who wants chunks of a peer that answers nothing is not kept waiting for it",
	func(l *oracle.Listen[waiting]) {
		attempts(l)
		lookups(l)
		oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Command) {
			w := pd.In(call)
			n := w.Nodes[call.Node()]
			c := w.CommandOf(n, e.Ticket)
			if n.User || c == nil || c.Want != want {
				return
			}
			from := c.Body.(*ops.Bring).From
			s.brings = append(s.brings, bringing{
				n.ID, e.Ticket, effects.Addr{Host: from.Host, Port: from.InitPort},
				call.Clock().Add(pd.Its(n).Cfg.BringTimeout), call.Clock(),
			})
		})
		oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Deliver) {
			node := int32(call.Node())
			i := slices.IndexFunc(s.brings, func(b bringing) bool { return b.node == node && b.ticket == e.Ticket })
			if i < 0 {
				return
			}
			b := s.brings[i]
			s.brings = slices.Delete(s.brings, i, i+1)
			if e.Code != effects.BackedOff {
				s.tries(&b)
			}
			s.introduced(call, &b, e)
			s.aloneFor(call, &b, e)
			s.unanswered(call, &b, e)
			if e.Code != effects.Expired || e.Why == nil || !shakes(e.Why.Stage) || b.from == (effects.Addr{}) {
				return
			}
			call.Judged(checkLeftAlone)
			tries := slices.ContainsFunc(s.attempts, func(a attempt) bool { return a.node == node && a.to == b.from })
			late := pd.In(call).Nodes[node].Busy || slices.Contains(s.given, givenUp{node, call.Now()}) // Handled only now.
			if call.Clock() >= b.until && !tries && !late {
				call.Breaks(checkLeftAlone, "node %d lets ticket %d wait for all of its time, and its peer is left alone",
					oracle.Node(node), oracle.Ticket(b.ticket))
			}
		})
		oracle.On(l, func(s *waiting, call *oracle.Call, _ oracle.Down) {
			node := int32(call.Node())
			s.brings = slices.DeleteFunc(s.brings, func(b bringing) bool { return b.node == node })
			s.attempts = slices.DeleteFunc(s.attempts, func(a attempt) bool { return a.node == node })
			s.frozen = slices.DeleteFunc(s.frozen, func(f frozen) bool { return f.node == node })
			s.lookups = slices.DeleteFunc(s.lookups, func(l lookup) bool { return l.node == node })
			s.missed = slices.DeleteFunc(s.missed, func(f frozen) bool { return f.node == node })
			s.tried = slices.DeleteFunc(s.tried, func(f frozen) bool { return f.node == node })
			s.given = slices.DeleteFunc(s.given, func(g givenUp) bool { return g.node == node })
		})
	})

// tries records a Bring that the breaker let pass. The Bring may be the trial of the peer.
func (s *waiting) tries(b *bringing) {
	i := slices.IndexFunc(s.tried, func(f frozen) bool { return f.node == b.node && f.host == b.from.Host })
	if i < 0 {
		i, s.tried = len(s.tried), append(s.tried, frozen{node: b.node, host: b.from.Host})
	}
	s.tried[i].at = max(s.tried[i].at, b.began)
}

// shakes reports whether a stage comes before the end of the handshake with the peer.
func shakes(s effects.Stage) bool { return s == effects.StageConnect || s == effects.StageHello }

// introduced checks a Bring whose chunk owner does not know the sender, because the owner has restarted or has dropped
// the inbound peer. The two nodes must shake hands again, and the Bring must not end as Refused.
func (s *waiting) introduced(call *oracle.Call, b *bringing, e *effects.Deliver) {
	if e.Code == effects.OK {
		return
	}
	n := pd.In(call).Nodes[call.Node()]
	if call.Judged(checkIntroduced); s.strange == (strange{call.Node(), n.Steps}) && e.Code == effects.Refused {
		call.Breaks(checkIntroduced, "node %d ends ticket %d as refused, because its peer does not know who asks",
			oracle.Node(call.Node()), oracle.Ticket(b.ticket))
	}
}

// aloneFor checks a Bring that ends because the circuit breaker of the peer is open. The peer must have left a lookup
// unanswered and must have answered none since, and the breaker may stay open for at most sixteen lookup timeouts,
// which is the documented limit. The check does not count earlier failed trials, because a trial may end with the
// timeout of the engine. A trial begins with a Bring, which may first have to make a link or a connection. All other
// Brings are held back for a lookup timeout after that, or until the lookup of the trial ends.
func (s *waiting) aloneFor(call *oracle.Call, b *bringing, e *effects.Deliver) {
	if e.Code != effects.BackedOff || b.from == (effects.Addr{}) {
		return
	}
	node, host := int32(call.Node()), b.from.Host
	once := pd.Its(pd.In(call).Nodes[call.Node()]).Cfg.LookupTimeout
	call.Judged(checkAloneFor)
	for i := range s.brings {
		if s.brings[i].node == node && s.brings[i].from == b.from {
			s.tries(&s.brings[i])
		}
	}
	if slices.ContainsFunc(s.tried, func(f frozen) bool {
		return f.node == node && f.host == host && call.Clock().Sub(f.at) <= once
	}) || slices.ContainsFunc(s.lookups, func(x lookup) bool {
		return x.node == node && x.host == host && x.conn != 0 && x.corr != 0 // This lookup may be the trial.
	}) {
		return
	}
	if !slices.ContainsFunc(s.missed, func(f frozen) bool {
		return f.node == node && f.host == host && call.Clock().Sub(f.at) <= 16*once
	}) {
		call.Breaks(checkAloneFor, "node %d ends ticket %d because its peer is to be left alone, which left no question "+
			"unanswered, or too long ago", oracle.Node(call.Node()), oracle.Ticket(b.ticket))
	}
}

// unanswered checks Brings after a lookup timed out. The rank must not send the peer another lookup for a further
// lookup timeout. Otherwise each request would wait for a frozen peer, which keeps its connections and sends nothing.
func (s *waiting) unanswered(call *oracle.Call, b *bringing, e *effects.Deliver) {
	waited := e.Code == effects.Expired && e.Why != nil && e.Why.Stage == effects.StageAsk &&
		e.Why.Field == link.NoReplyReason(0).Field
	x := frozen{int32(call.Node()), b.from.Host, call.Clock()}
	i := slices.IndexFunc(s.frozen, func(f frozen) bool { return f.node == x.node && f.host == x.host })
	if i < 0 {
		if waited {
			s.frozen = append(s.frozen, x)
		}
		return
	}
	// A Bring that began before the breaker opened says nothing about the time since.
	was := s.frozen[i].at
	if b.began > was && b.began < was.Add(pd.Its(pd.In(call).Nodes[call.Node()]).Cfg.LookupTimeout) {
		if call.Judged(checkFrozen); waited {
			call.Breaks(checkFrozen, "node %d lets ticket %d wait for a peer that has just left a question unanswered",
				oracle.Node(call.Node()), oracle.Ticket(b.ticket))
		}
	}
	if waited && b.began > was {
		s.frozen[i] = x
	}
}

// lookups records which peers answer lookups.
func lookups(l *oracle.Listen[waiting]) {
	find := func(s *waiting, call *oracle.Call, is func(lookup) bool) int {
		return slices.IndexFunc(s.lookups, func(x lookup) bool { return x.node == int32(call.Node()) && is(x) })
	}
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Open) {
		if e.Channel == effects.ChannelLookup {
			s.lookups = append(s.lookups, lookup{int32(call.Node()), e.Addr.Host, e.Corr, 0})
		}
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Opened) {
		if i := find(s, call, func(x lookup) bool { return x.conn == 0 && x.corr == e.Corr }); i >= 0 {
			s.lookups[i].corr, s.lookups[i].conn = 0, e.Conn
		}
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Send) {
		if i := find(s, call, func(x lookup) bool { return x.corr == 0 && x.conn == e.Conn }); i >= 0 {
			s.lookups = append(s.lookups, lookup{int32(call.Node()), s.lookups[i].host, e.Corr, e.Conn})
		}
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Unanswered) {
		node := int32(call.Node())
		if i := find(s, call, func(x lookup) bool { return x.conn != 0 && x.corr == e.Corr }); i >= 0 {
			host := s.lookups[i].host
			s.missed = slices.DeleteFunc(s.missed, func(f frozen) bool { return f.node == node && f.host == host })
			s.missed = append(s.missed, frozen{node, host, call.Clock()})
		}
		s.lookups = slices.DeleteFunc(s.lookups, func(x lookup) bool { return x.node == node && x.corr == e.Corr })
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Replied) {
		var m protocol.P2PErrorMsg
		if protocol.HasTag(e.Body, protocol.TagP2PErrorMsg, &pd.WireLimits) && m.Decode(e.Body, &pd.WireLimits) == nil &&
			m.Code == protocol.P2PNotIntroduced {
			s.strange = strange{call.Node(), pd.In(call).Nodes[call.Node()].Steps + 1}
		}
		i := find(s, call, func(x lookup) bool { return x.conn != 0 && x.corr == e.Corr })
		if i < 0 {
			return
		}
		node, host := s.lookups[i].node, s.lookups[i].host
		s.lookups = slices.Delete(s.lookups, i, i+1)
		s.frozen = slices.DeleteFunc(s.frozen, func(f frozen) bool { return f.node == node && f.host == host })
		s.missed = slices.DeleteFunc(s.missed, func(f frozen) bool { return f.node == node && f.host == host })
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Close) {
		s.lookups = slices.DeleteFunc(s.lookups, func(x lookup) bool {
			return x.node == int32(call.Node()) && x.conn == e.Conn && x.corr == 0
		})
	})
}

// attempts records the handshakes in progress, and the times at which a node gave a peer up.
func attempts(l *oracle.Listen[waiting]) {
	without := func(s *waiting, call *oracle.Call, conn effects.Conn) {
		s.attempts = slices.DeleteFunc(s.attempts, func(a attempt) bool {
			return a.node == int32(call.Node()) && a.conn == conn
		})
	}
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Open) {
		if e.Channel == effects.ChannelInit {
			s.attempts = append(s.attempts, attempt{int32(call.Node()), e.Addr, e.Corr, 0})
		}
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Opened) {
		i := slices.IndexFunc(s.attempts, func(a attempt) bool {
			return a.node == int32(call.Node()) && a.conn == 0 && a.corr == e.Corr
		})
		switch {
		case i < 0:
		case e.Code == effects.OK:
			s.attempts[i].conn = e.Conn
		default:
			s.attempts = slices.Delete(s.attempts, i, i+1)
		}
	})
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.ConnLost) { without(s, call, e.Conn) })
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Close) { without(s, call, e.Conn) })
	oracle.On(l, func(s *waiting, call *oracle.Call, e *effects.Observe) {
		if e.Fact == effects.FactLinkDown {
			node := int32(call.Node())
			s.given = slices.DeleteFunc(s.given, func(g givenUp) bool { return g.node == node })
			s.given = append(s.given, givenUp{node, call.Now()})
		}
	})
}

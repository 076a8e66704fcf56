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

// Who answers no hello is left alone for a while. Whoever wants chunks of it meanwhile is not kept waiting for all of
// its own time: it has a miss as soon as the peer is given up, or at once.

var checkFrozen = oracle.NewCheck("L3", "chunks of peers that left a question unanswered")

var checkAloneFor = oracle.NewCheck("L4", "peers that are left alone, and for how long")

var checkIntroduced = oracle.NewCheck("L3", "chunks of peers that do not know who asks")

var checkLeftAlone = oracle.NewCheck("L3", "chunks of peers that answer nothing")

// waiting is what nodes in their lives wait for.
type waiting struct {
	brings   []bringing `snap:"skip"` // that name somebody, and have no outcome
	attempts []attempt  `snap:"skip"` // to shake hands, as far as connections tell: an ended one may stand for longer
	given    []givenUp  `snap:"skip"`
	frozen   []frozen   `snap:"skip"` // who left a question unanswered for its time, and has answered none since
	lookups  []lookup   `snap:"skip"` // connections for questions, and questions on them
	missed   []frozen   `snap:"skip"` // whose newest question was not answered, however it ended
	tried    []frozen   `snap:"skip"` // for whom a Bring began last that was not refused
	strange  strange    `snap:"skip"` // the newest answer that its owner does not know who asks
}

// strange is the step of a node in which that answer came.
type strange struct {
	node oracle.Node
	step uint64
}

type frozen struct {
	node int32
	host string
	at   effects.Time // by the node's clock
}

// A lookup is a connection that is being opened (corr and host), is open (conn and host), or a question on one.
type lookup struct {
	node int32
	host string
	corr effects.Corr
	conn effects.Conn
}

type bringing struct {
	node   int32
	ticket effects.Ticket
	from   effects.Addr
	until  effects.Time // by its node's clock
	began  effects.Time // likewise
}

type attempt struct {
	node int32
	to   effects.Addr
	corr effects.Corr
	conn effects.Conn
}

// givenUp is when a node gave somebody up last.
type givenUp struct {
	node int32
	at   effects.Time
}

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
			late := pd.In(call).Nodes[node].Busy || slices.Contains(s.given, givenUp{node, call.Now()}) // It comes to it now.
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

// tries notes a Bring that was taken: it may be the trial of its peer.
func (s *waiting) tries(b *bringing) {
	i := slices.IndexFunc(s.tried, func(f frozen) bool { return f.node == b.node && f.host == b.from.Host })
	if i < 0 {
		i, s.tried = len(s.tried), append(s.tried, frozen{node: b.node, host: b.from.Host})
	}
	s.tried[i].at = max(s.tried[i].at, b.began)
}

// shakes says whether somebody is not known yet at a stage.
func shakes(s effects.Stage) bool { return s == effects.StageConnect || s == effects.StageHello }

// introduced judges what becomes of a Bring whose owner does not know who asks, because it has begun anew or forgot its
// guest: the two shake hands again, and that is no refusal.
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

// aloneFor judges a Bring that ends because its peer is left alone: that left a question unanswered and has answered
// none since, and is left alone for no longer than the most that was said, sixteen times as long as a question may
// take. How often its trials failed before is not counted here: one may end with the patience of its engine. A trial
// begins with its Bring, which may have a link or a connection to make first, and others leave the peer alone for as
// long as a question may take, or until its question ends.
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
		return x.node == node && x.host == host && x.conn != 0 && x.corr != 0 // It may be the trial.
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

// unanswered follows a Bring whose question was not answered in its time. A peer that did that is not asked for as long
// again: otherwise each request would wait for one that is frozen, which keeps its connections and says nothing.
func (s *waiting) unanswered(call *oracle.Call, b *bringing, e *effects.Deliver) {
	waited := e.Code == effects.Expired && e.Why != nil && e.Why.Stage == effects.StageAsk &&
		e.Why.Field == link.NoAnswer(0).Field
	x := frozen{int32(call.Node()), b.from.Host, call.Clock()}
	i := slices.IndexFunc(s.frozen, func(f frozen) bool { return f.node == x.node && f.host == x.host })
	if i < 0 {
		if waited {
			s.frozen = append(s.frozen, x)
		}
		return
	}
	// A question from before the peer was left alone says nothing of the time since.
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

// lookups keeps books of who answers questions.
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

// attempts keeps books of who tries to reach whom, and of who gave up.
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

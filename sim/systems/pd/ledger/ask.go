package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A Bring asks its peer by a lookup, and a Recall asks by a query. The rank waits for the reply for a configured time,
// neither less nor more, and asks again after a lost connection up to a configured number of attempts.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkAskEarly    = oracle.NewCheck("L1", "Brings and recalls that expire before their time")
	checkAskLate     = oracle.NewCheck("L3", "lookups and queries that wait too long for a reply")
	checkAskAttempts = oracle.NewCheck("S18", "number of attempts of a lookup or a query")
	checkAskDones    = oracle.NewCheck("S18", "number of attempts to give back a lease on request")
	checkAskRetried  = oracle.NewCheck("L5", "lookups and queries that are sent again after a lost connection")
)

// askOracle judges how long ranks wait for the replies to lookups and queries, and how often they ask.
type askOracle struct {
	oracleBase
	perIncarnation[askState]
	lookup protocol.AscendBatchedLookupAndGetMsg     `snap:"scratch"`
	query  protocol.CacheQueryRequest                `snap:"scratch"`
	done   protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
}

func (*askOracle) subscribe(l *oracle.Subscriptions[askOracle]) {
	oracle.On(l, func(o *askOracle, _ *oracle.Call, e pd.CommandReceived) { o.recordCommand(e.Node, e.Command, e.Ticket) })
	oracle.On(l, func(o *askOracle, _ *oracle.Call, e world.SendingRequest) {
		o.recordRequest(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *askOracle, c *oracle.Call, e *effects.Replied) { o.recordEnd(o.nodeOf(c), e.Corr, true) })
	oracle.On(l, func(o *askOracle, c *oracle.Call, e *effects.Unanswered) { o.recordEnd(o.nodeOf(c), e.Corr, false) })
	oracle.On(l, func(o *askOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLinkDown && e.Effect.Code == effects.Expired {
			o.recordLinkDown(e.Node, e.Effect.Why)
		}
	})
	oracle.On(l, func(o *askOracle, _ *oracle.Call, e pd.CommandOutcome) { o.verifyOutcome(e.Node, e.Command, e.Effect) })
}

// askState records the Brings and recalls of an incarnation of a node that have no outcome yet.
type askState struct {
	asks []ask `snap:"skip"`
	// expiredHosts lists the hosts with which the last handshake expired. The commands that need such a link end for the
	// same reason.
	expiredHosts []string   `snap:"skip"`
	dones        []sentDone `snap:"skip"`
}

func (s *askState) clearForReuse() {
	*s = askState{asks: s.asks[:0], expiredHosts: s.expiredHosts[:0], dones: s.dones[:0]}
}

// sentDone counts the messages that give back a lease of a node.
type sentDone struct {
	owner int32
	grant uint64
	count uint32
}

// ask is a Bring or a recall, with the last request that asks its peer.
type ask struct {
	ticket    effects.Ticket
	command   *pd.Command
	operation uint64 // zero: no request was sent yet
	attempts  uint32
	corr      effects.Corr // of the request in flight; zero: none
	conn      effects.Conn
	sentAt    effects.Time // by the clock of the node
	firstSent effects.Time // when the first request was sent
	frozen    int64        // how long the node had been frozen when the request was sent
	answered  bool         // a peer has replied, and the reply may be the reason for the outcome
	lostStep  uint64       // the step that handles the end of a request without a reply
}

// recordCommand records a Bring that names its peer, or a recall.
func (or *askOracle) recordCommand(n *world.Node, c *pd.Command, t effects.Ticket) {
	switch b := c.Body.(type) {
	case *p2p.Bring:
		if b.From == (p2p.Peer{}) {
			return // Several peers may be asked, one after the other.
		}
	case *recall.Recall:
	default:
		return
	}
	state := or.stateOf(n)
	state.asks = append(state.asks, ask{ticket: t, command: c})
}

// recordRequest records a lookup or a query when it is sent.
func (or *askOracle) recordRequest(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	state := or.stateOf(n)
	operation, attempt, keys, name, isLookup := uint64(0), uint32(0), [][]byte(nil), []byte(nil), false
	//exhaustive:ignore
	switch c.Channel {
	case effects.ChannelLookup:
		m := &or.lookup
		if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
			if or.done.Decode(body, &pd.WireLimits) == nil && or.done.HasExt {
				or.verifyDone(n, c.Server, or.done.Ext.Grant)
			}
			return
		}
		operation, attempt, keys, name, isLookup = m.Ext.Operation, m.Ext.Attempt, m.Keys, m.LookupID, true
	case effects.ChannelQuery:
		m := &or.query
		if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		if len(m.Keys) == 0 {
			for _, grant := range m.Ext.Done {
				or.verifyDone(n, c.Server, grant)
			}
			return
		}
		operation, attempt, keys, name = m.Ext.Operation, m.Ext.Attempt, m.Keys, m.Ext.Request
	default:
		return
	}
	i := slices.IndexFunc(state.asks, func(x ask) bool { return x.operation == operation })
	if i < 0 {
		i = slices.IndexFunc(state.asks, func(x ask) bool { return x.operation == 0 && x.asksFor(c, isLookup, name, keys) })
	}
	isNewGrant := i < 0
	if isNewGrant { // A lookup that grants pages gets another operation when the pages of the last attempt are gone.
		i = slices.IndexFunc(state.asks, func(x ask) bool {
			return x.isPush() && x.corr == 0 && x.attempts+1 == attempt && x.asksFor(c, isLookup, name, keys)
		})
	}
	if i < 0 {
		return // Example: a lookup of a Bring without a named peer.
	}
	x := &state.asks[i]
	state.expiredHosts = slices.DeleteFunc(state.expiredHosts, func(host string) bool { return host == c.Host })
	x.operation, x.corr, x.conn, x.answered = operation, corr, effects.Conn(c.ID), false
	x.sentAt, x.frozen = or.w.ReadClock(n), n.FrozenTime
	if x.attempts++; x.attempts == 1 || isNewGrant {
		x.firstSent = x.sentAt
	}
	limit := attemptsMax(n)
	if or.countJudged(checkAskAttempts); x.attempts > limit || attempt != x.attempts {
		or.fail(checkAskAttempts, "node %d asks for ticket %d as attempt %d, the %dth of at most %d",
			n.AsSubject(), oracle.Ticket(x.ticket), attempt, x.attempts, limit)
	}
}

// verifyDone checks how often a node gives the same lease back.
func (or *askOracle) verifyDone(n *world.Node, owner int32, grant uint64) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.dones, func(x sentDone) bool { return x.owner == owner && x.grant == grant })
	if i < 0 {
		i = len(state.dones)
		state.dones = append(state.dones, sentDone{owner: owner, grant: grant})
	}
	state.dones[i].count++
	if or.countJudged(checkAskDones); state.dones[i].count > attemptsMax(n) {
		or.fail(checkAskDones, "node %d gives lease %d back for the %dth time, of at most %d", n.AsSubject(), grant,
			state.dones[i].count, attemptsMax(n))
	}
}

// asksFor reports whether a request on a connection can be that of the command.
func (x *ask) asksFor(c *world.Conn, isLookup bool, name []byte, keys [][]byte) bool {
	switch b := x.command.Body.(type) {
	case *p2p.Bring:
		// The request leaves out the first chunks, which are here.
		return isLookup && x.hostOf() == c.Host && string(b.Request) == string(name) && len(keys) <= len(b.Keys) &&
			slices.EqualFunc(b.Keys[len(b.Keys)-len(keys):], keys, slices.Equal)
	case *recall.Recall:
		return !isLookup && x.hostOf() == c.Host && string(b.Request) == string(name) && slices.EqualFunc(b.Keys, keys, slices.Equal)
	}
	return false
}

// recordEnd records the end of a request.
func (or *askOracle) recordEnd(n *world.Node, corr effects.Corr, answered bool) {
	asks := or.stateOf(n).asks
	for i := range asks {
		if x := &asks[i]; x.corr == corr && corr != 0 {
			if x.corr, x.answered = 0, answered; !answered {
				x.lostStep = n.StepCount + 1
			}
		}
	}
}

// recordLinkDown records that a handshake, or a link, expired.
func (or *askOracle) recordLinkDown(n *world.Node, why *effects.Why) {
	state := or.stateOf(n)
	if why != nil && !slices.Contains(state.expiredHosts, why.Addr.Host) {
		state.expiredHosts = append(state.expiredHosts, why.Addr.Host)
	}
}

// isPush reports whether the peer writes the chunks. The pages are granted when the first request is sent, and the Bring
// ends with the grant.
func (x *ask) isPush() bool {
	b, ok := x.command.Body.(*p2p.Bring)
	return ok && b.Mode == p2p.Push
}

// hostOf returns the host that the command names.
func (x *ask) hostOf() string {
	switch b := x.command.Body.(type) {
	case *p2p.Bring:
		return b.From.Host
	case *recall.Recall:
		return b.Peer.Host
	}
	return ""
}

// attemptsMax returns how often n may send a request of an operation. Zero in the settings means the default.
func attemptsMax(n *world.Node) uint32 { return cmp.Or(pd.InfoOf(n).Cfg.Tuning.AttemptsMax, 3) }

// replyTime returns how long the rank waits for the reply to a request of the command.
func replyTime(n *world.Node, c *pd.Command) effects.Duration {
	if _, isBring := c.Body.(*p2p.Bring); isBring {
		return pd.InfoOf(n).Cfg.LookupTimeout
	}
	return pd.InfoOf(n).Cfg.ReplyTimeout
}

// verifyOutcome judges the outcome of a Bring or a recall by the time at which the command and the last request began.
func (or *askOracle) verifyOutcome(n *world.Node, c *pd.Command, e *effects.Deliver) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.asks, func(x ask) bool { return x.ticket == e.Ticket })
	if i < 0 {
		return
	}
	x := state.asks[i]
	state.asks = slices.Delete(state.asks, i, i+1)
	waited, limit := or.w.ReadClock(n).Sub(x.sentAt), replyTime(n, c)
	conn := or.w.ConnOf(uint64(x.conn))
	if x.corr != 0 && conn != nil && !conn.Closed {
		or.countJudged(checkAskLate)
		if late := waited - n.FrozenSince(x.frozen) - limit - pd.Grace; late > 0 {
			or.fail(checkAskLate, "node %d waits for the reply to attempt %d of ticket %d until %d ns after its time",
				n.AsSubject(), x.attempts, oracle.Ticket(x.ticket), late)
			return
		}
	}
	if x.lostStep == n.StepCount && e.Why != nil && saysConnEnded(e.Why) {
		or.countJudged(checkAskRetried)
		if x.attempts < attemptsMax(n) {
			or.fail(checkAskRetried, "node %d ends ticket %d (%s) after %d attempts without a reply, of %d",
				n.AsSubject(), oracle.Ticket(x.ticket), e.Code, x.attempts, attemptsMax(n))
			return
		}
	}
	early := pd.TimeLeft(or.w, n, c)
	switch {
	case e.Code != effects.Expired:
	case early <= 0, x.corr != 0 && waited >= limit, x.isPush() && or.w.ReadClock(n).Sub(x.firstSent) >= pd.InfoOf(n).Cfg.Lease:
		or.countJudged(checkAskEarly)
	case x.answered, slices.Contains(state.expiredHosts, x.hostOf()), x.lostStep == n.StepCount && x.attempts >= attemptsMax(n):
		or.countVoid(checkAskEarly)
	default:
		or.fail(checkAskEarly, "node %d ends ticket %d as %s %d ns before its time limit, %d ns after its last attempt",
			n.AsSubject(), oracle.Ticket(x.ticket), e.Code, early, waited)
	}
}

// saysConnEnded reports whether a command failed because a request got no reply.
func saysConnEnded(w *effects.Why) bool {
	lost, closed := link.ConnEndedReason(effects.PeerLost, 0), link.ConnEndedReason(effects.Closed, 0)
	return w.Field == lost.Field && w.Theirs == lost.Theirs || w.Field == closed.Field && w.Theirs == closed.Theirs
}

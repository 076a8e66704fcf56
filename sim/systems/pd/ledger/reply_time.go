package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A rank waits for a reply on a connection for ReplyTimeout, counted from the request or from a later reply to another
// request on the connection. Then the rank closes the connection. A peer that never replies thereby holds the rows of a
// rank for a limited time.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkReplyEarly = oracle.NewCheck("L5", "connections closed before the time for a reply is over")
	checkReplyLate  = oracle.NewCheck("S18", "requests to peers that do not reply")
)

// replyTimeOracle judges how long ranks wait for replies.
type replyTimeOracle struct {
	oracleBase
	perIncarnation[replyTimeState]
}

func (*replyTimeOracle) subscribe(l *oracle.Subscriptions[replyTimeOracle]) {
	oracle.On(l, func(o *replyTimeOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordStep(e.Node, e.Event) })
	oracle.On(l, func(o *replyTimeOracle, _ *oracle.Call, e world.SendingRequest) {
		o.recordRequest(e.Node, e.Conn, e.Corr)
	})
	oracle.On(l, func(o *replyTimeOracle, c *oracle.Call, e *effects.Replied) {
		o.recordReply(o.nodeOf(c), o.recordEnd(o.nodeOf(c), e.Corr))
	})
	oracle.On(l, func(o *replyTimeOracle, c *oracle.Call, e *effects.Unanswered) { o.recordEnd(o.nodeOf(c), e.Corr) })
	oracle.On(l, func(o *replyTimeOracle, c *oracle.Call, e *effects.Close) { o.verifyClose(o.nodeOf(c), e.Conn) })
	oracle.On(l, func(o *replyTimeOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLinkDown {
			o.stateOf(e.Node).linkDown = true
		}
	})
	oracle.On(l, func(o *replyTimeOracle, c *oracle.Call, _ oracle.StepEnded) { o.verifyWaits(o.nodeOf(c)) })
}

// replyTimeState records the requests in flight of an incarnation of a node, in the order in which they were sent.
type replyTimeState struct {
	requests []sentAt `snap:"skip"`
	isTick   bool     `snap:"scratch"` // the step handles the end of a time
	linkDown bool     `snap:"scratch"` // the step ends a link
}

func (s *replyTimeState) clearForReuse() { *s = replyTimeState{requests: s.requests[:0]} }

// sentAt is a request in flight.
type sentAt struct {
	conn    effects.Conn
	corr    effects.Corr
	channel effects.Channel
	sent    effects.Time // when the request was sent, by the clock of the node
	at      effects.Time // when the request was sent or a reply arrived on its connection, by the clock of the node
	frozen  int64        // how long the node had been frozen
}

// recordStep records whether a step can close a connection only because of the end of a time.
func (or *replyTimeOracle) recordStep(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	_, state.isTick = ev.(*effects.Tick)
	state.linkDown = false
}

// recordRequest records a request. The requests of a registration have a time of their own.
func (or *replyTimeOracle) recordRequest(n *world.Node, c *world.Conn, corr effects.Corr) {
	//exhaustive:ignore
	switch c.Channel {
	case effects.ChannelInit, effects.ChannelAlloc, effects.ChannelQuery, effects.ChannelLookup:
		state := or.stateOf(n)
		state.requests = append(state.requests, sentAt{effects.Conn(c.ID), corr, c.Channel, or.w.ReadClock(n), or.w.ReadClock(n),
			n.FrozenTime})
	}
}

// recordReply records that a peer replied on a connection to one of several requests.
func (or *replyTimeOracle) recordReply(n *world.Node, conn effects.Conn) {
	requests := or.stateOf(n).requests
	for i := range requests {
		if x := &requests[i]; x.conn == conn && x.channel == effects.ChannelAlloc {
			x.at, x.frozen = or.w.ReadClock(n), n.FrozenTime
		}
	}
}

// recordEnd records that the machine is notified of the end of a request, and returns the connection of the request.
func (or *replyTimeOracle) recordEnd(n *world.Node, corr effects.Corr) (conn effects.Conn) {
	state := or.stateOf(n)
	if i := slices.IndexFunc(state.requests, func(x sentAt) bool { return x.corr == corr }); i >= 0 {
		conn = state.requests[i].conn
		state.requests = slices.Delete(state.requests, i, i+1)
	}
	return conn
}

// verifyClose checks that a connection with requests in flight is closed because one of them got no reply in
// time. A flow may count the time anew when a reply to another request arrives, and need not. A lookup that was given
// up may still get a reply, so the connection of lookups stays longer.
func (or *replyTimeOracle) verifyClose(n *world.Node, conn effects.Conn) {
	state := or.stateOf(n)
	first, channel := effects.Time(0), effects.Channel(0)
	for _, x := range state.requests {
		if x.conn == conn && (channel == 0 || x.sent < first) {
			first, channel = x.sent, x.channel
		}
	}
	if channel == 0 {
		return
	}
	state.requests = slices.DeleteFunc(state.requests, func(x sentAt) bool { return x.conn == conn })
	// The end of a link also closes the connections of its lanes.
	if !state.isTick || channel == effects.ChannelLookup || state.linkDown && channel != effects.ChannelInit {
		return
	}
	or.countJudged(checkReplyEarly)
	if left := pd.InfoOf(n).Cfg.ReplyTimeout - or.w.ReadClock(n).Sub(first); left > 0 {
		or.fail(checkReplyEarly, "node %d closes connection %d, on which a reply may still arrive for %d ns",
			n.AsSubject(), oracle.Conn(conn), left)
	}
}

// verifyWaits checks that the node waits for no reply longer than the node may.
func (or *replyTimeOracle) verifyWaits(n *world.Node) {
	state := or.stateOf(n)
	if len(state.requests) == 0 || n.Busy {
		return
	}
	or.countJudged(checkReplyLate)
	now, cfg := or.w.ReadClock(n), &pd.InfoOf(n).Cfg
	for i := range state.requests {
		x, limit := &state.requests[i], cfg.ReplyTimeout+pd.Grace
		if x.channel == effects.ChannelLookup {
			limit += cfg.LookupTimeout
		}
		if late := now.Sub(x.at) - n.FrozenSince(x.frozen) - limit; late > 0 {
			or.fail(checkReplyLate, "node %d waits for a reply on connection %d until %d ns after the time of the request",
				n.AsSubject(), oracle.Conn(x.conn), late)
			return
		}
	}
}

package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// After a failure a rank waits before it connects to the same address again, so that an address that fails at once does
// not take the rank's time. A done message is tried NotifyMax times, and the pauses between the attempts grow up to
// BackoffMax.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPause     = oracle.NewCheck("S18", "pauses between attempts to connect")
	checkDonePause = oracle.NewCheck("S18", "pauses between attempts to send a done message")
	checkDoneTries = oracle.NewCheck("S18", "number of attempts to send a done message")
	checkDoneRetry = oracle.NewCheck("L2", "done messages that are sent again")
)

// retryPauseOracle judges the pauses between attempts, and the number of attempts to send a done message.
type retryPauseOracle struct {
	oracleBase
	perIncarnation[retryPauseState]
}

func (*retryPauseOracle) subscribe(l *oracle.Subscriptions[retryPauseOracle]) {
	oracle.On(l, func(o *retryPauseOracle, c *oracle.Call, e *effects.Open) { o.verifyOpen(o.nodeOf(c), e) })
	oracle.On(l, func(o *retryPauseOracle, c *oracle.Call, e *effects.Opened) {
		o.recordOpened(o.nodeOf(c), e)
	})
	oracle.On(l, func(o *retryPauseOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLinkDown && e.Effect.Why != nil {
			o.recordFailure(e.Node, o.stateOf(e.Node).addressOf(effects.ChannelInit, e.Effect.Why.Addr))
		}
	})
	oracle.On(l, func(o *retryPauseOracle, _ *oracle.Call, e pd.DoneSent) {
		o.verifyDone(e.Node, effects.GrantID(e.Message.Ext.Grant))
	})
	oracle.On(l, func(o *retryPauseOracle, c *oracle.Call, e *effects.Post) { o.recordPost(o.nodeOf(c), e) })
	oracle.On(l, func(o *retryPauseOracle, c *oracle.Call, e *effects.SendDone) {
		o.recordSendDone(o.nodeOf(c), e.Corr, e.Code)
	})
	oracle.On(l, func(o *retryPauseOracle, c *oracle.Call, _ oracle.StepEnded) { o.verifyRetries(o.nodeOf(c)) })
}

// retryPauseState records the addresses to which an incarnation of a node connects.
type retryPauseState struct {
	addresses []pausedAddress `snap:"skip"`
	posting   int             `snap:"scratch"` // index of the address to which the machine posts, plus one
	overdue   int             `snap:"skip"`    // number of addresses to which a done message must be sent again
}

func (s *retryPauseState) clearForReuse() { *s = retryPauseState{addresses: s.addresses[:0]} }

// pausedAddress is an address on a channel, with the failed attempts.
type pausedAddress struct {
	channel  effects.Channel
	addr     effects.Addr
	corr     effects.Corr // of the attempt in progress
	conn     effects.Conn
	failures uint32       // failed attempts since the last success, or since a done message was given up
	failedAt effects.Time // by the clock of the node; zero: the last attempt did not fail
	frozen   int64        // how long the node had been frozen
	pause    effects.Duration
	mustTry  bool            // a done message must be tried again
	grant    effects.GrantID // of the done message that was sent last
	givenUp  effects.GrantID // of the done message that had its last attempt
}

// addressOf returns the record of an address.
func (s *retryPauseState) addressOf(channel effects.Channel, addr effects.Addr) *pausedAddress {
	i := slices.IndexFunc(s.addresses, func(x pausedAddress) bool { return x.channel == channel && x.addr == addr })
	if i < 0 {
		i = len(s.addresses)
		s.addresses = append(s.addresses, pausedAddress{channel: channel, addr: addr})
	}
	return &s.addresses[i]
}

// verifyOpen checks that the node has waited since the last failure.
func (or *retryPauseOracle) verifyOpen(n *world.Node, e *effects.Open) {
	isDone := e.Channel == effects.ChannelDone
	if !isDone && e.Channel != effects.ChannelInit {
		return
	}
	x := or.stateOf(n).addressOf(e.Channel, e.Addr)
	if isDone {
		x.corr, x.conn = e.Corr, 0
		or.verifyDonePause(n, x)
	} else {
		or.verifyPause(n, x)
	}
	or.endPause(n, x)
}

// verifyPause checks the pause before a node connects again. The pause is at least half of BackoffMin, because it is
// drawn. If there are more peers than the table has rows, the failure may be forgotten. A node that brings chunks from a
// peer and sends chunks to the same peer shakes hands for each purpose, and so does a node that renews leases.
func (or *retryPauseOracle) verifyPause(n *world.Node, x *pausedAddress) {
	if x.failedAt == 0 {
		return
	}
	if pd.InfoOf(n).Cfg.PeersMax < uint32(len(or.w.Nodes)) || isDualRole(n) || n.KeepsOffers {
		or.countVoid(checkPause)
		return
	}
	or.countJudged(checkPause)
	if pause := or.w.ReadClock(n).Sub(x.failedAt); pause < min(pd.InfoOf(n).Cfg.BackoffMin, pd.InfoOf(n).Cfg.BackoffMax)/2 {
		or.fail(checkPause, "node %d connects to %s:%d again %d ns after an attempt failed", n.AsSubject(), x.addr.Host, x.addr.Port, pause)
	}
}

// verifyDonePause checks the pause before the node connects again to send a done message.
func (or *retryPauseOracle) verifyDonePause(n *world.Node, x *pausedAddress) {
	if x.failedAt == 0 {
		return
	}
	or.countJudged(checkDonePause)
	if pause := or.w.ReadClock(n).Sub(x.failedAt); pause < x.pause {
		or.fail(checkDonePause, "node %d sends done messages to %s:%d again %d ns after attempt %d failed, and must wait %d ns",
			n.AsSubject(), x.addr.Host, x.addr.Port, pause, x.failures, x.pause)
	}
}

// endPause records that the node tries again.
func (or *retryPauseOracle) endPause(n *world.Node, x *pausedAddress) {
	if x.failedAt = 0; x.mustTry {
		x.mustTry = false
		or.stateOf(n).overdue--
	}
}

// recordOpened records whether a connection was made.
func (or *retryPauseOracle) recordOpened(n *world.Node, e *effects.Opened) {
	addresses := or.stateOf(n).addresses
	i := slices.IndexFunc(addresses, func(x pausedAddress) bool { return x.corr == e.Corr && x.corr != 0 && x.conn == 0 })
	if i < 0 {
		return
	}
	x := &addresses[i]
	x.corr = 0
	if e.Code == effects.OK {
		x.conn = e.Conn
		return
	}
	or.recordFailure(n, x)
}

// recordPost records the address to which a message is posted.
func (or *retryPauseOracle) recordPost(n *world.Node, e *effects.Post) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.addresses, func(x pausedAddress) bool { return x.conn == e.Conn && x.conn != 0 })
	if state.posting = i + 1; i >= 0 {
		state.addresses[i].corr = e.Corr
	}
}

// verifyDone checks that a done message is not sent once more after its last attempt.
func (or *retryPauseOracle) verifyDone(n *world.Node, grant effects.GrantID) {
	state := or.stateOf(n)
	if state.posting == 0 || grant == 0 {
		return
	}
	x := &state.addresses[state.posting-1]
	or.countJudged(checkDoneTries)
	if x.givenUp == grant {
		or.fail(checkDoneTries, "node %d sends the done message of grant %d once more after %d failed attempts",
			n.AsSubject(), n.GrantSubject(grant), doneTriesMax(n))
		return
	}
	x.grant, x.givenUp = grant, 0
}

// doneTriesMax returns how often n tries to send a done message.
func doneTriesMax(n *world.Node) uint32 { return cmp.Or(pd.InfoOf(n).Cfg.Tuning.NotifyMax, 5) }

// recordSendDone records whether the transport accepted a message.
func (or *retryPauseOracle) recordSendDone(n *world.Node, corr effects.Corr, code effects.Code) {
	addresses := or.stateOf(n).addresses
	i := slices.IndexFunc(addresses, func(x pausedAddress) bool { return x.corr == corr && corr != 0 && x.conn != 0 })
	if i < 0 {
		return
	}
	x := &addresses[i]
	if x.corr = 0; code == effects.OK {
		x.failures, x.grant, x.givenUp = 0, 0, 0
		return
	}
	or.recordFailure(n, x)
}

// recordFailure records a failed attempt.
func (or *retryPauseOracle) recordFailure(n *world.Node, x *pausedAddress) {
	cfg := &pd.InfoOf(n).Cfg
	x.conn, x.failedAt, x.frozen = 0, or.w.ReadClock(n), n.FrozenTime
	if x.channel != effects.ChannelDone {
		return
	}
	x.pause = min(cfg.BackoffMin<<min(x.failures, 20), cfg.BackoffMax)
	if x.failures++; x.failures >= doneTriesMax(n) {
		x.failures, x.givenUp, x.grant = 0, x.grant, 0
		return
	}
	x.mustTry = true
	or.stateOf(n).overdue++
}

// verifyRetries checks that done messages are tried again in time.
func (or *retryPauseOracle) verifyRetries(n *world.Node) {
	state := or.stateOf(n)
	if state.overdue == 0 {
		return
	}
	or.countJudged(checkDoneRetry)
	now, limit := or.w.ReadClock(n), pd.InfoOf(n).Cfg.BackoffMax+pd.Grace
	for i := range state.addresses {
		x := &state.addresses[i]
		if x.mustTry && now.Sub(x.failedAt)-n.FrozenSince(x.frozen) > limit {
			or.fail(checkDoneRetry, "node %d does not send a done message to %s:%d again after %d failed attempts of at most %d",
				n.AsSubject(), x.addr.Host, x.addr.Port, x.failures, doneTriesMax(n))
			return
		}
	}
}

package ledger

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node that could not reach the proxy, or was refused by the proxy, must try again within BackoffMax, however often
// that happened.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkProxyTried = oracle.NewCheck("L5", "attempts to notify the proxy")
	checkProxyNext  = oracle.NewCheck("L5", "notifications that wait too long")
	checkProxyTries = oracle.NewCheck("S9", "number of attempts to notify the proxy of a request")
	checkProxyAddr  = oracle.NewCheck("L5", "address and rank in notifications")
)

// proxyOracle judges how long a machine waits before the next attempt to notify the proxy (L5).
type proxyOracle struct {
	oracleBase
	perIncarnation[proxyState]
}

func (*proxyOracle) subscribe(l *oracle.Subscriptions[proxyOracle]) {
	oracle.On(l, func(o *proxyOracle, c *oracle.Call, e *effects.Opened) { o.handleOpened(o.nodeOf(c), e) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e world.OpeningConn) { o.recordConnect(e.Node, e.Conn) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e pd.ProxyNotified) {
		o.recordNotification(e.Node, e.Message, e.Accepted)
	})
	oracle.On(l, func(o *proxyOracle, c *oracle.Call, e *effects.Open) { o.verifyAddr(o.nodeOf(c), e) })
	oracle.On(l, func(o *proxyOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// proxyState records the notifications of an incarnation of a node to the proxy.
type proxyState struct {
	conn            uint64         `snap:"skip"` // the newest connection to the proxy
	retryBy         int64          `snap:"skip"` // when the machine must have tried again; 0: nothing failed
	frozenAtFailure int64          `snap:"skip"`
	lastAt          int64          `snap:"skip"` // when the newest notification, or try, was over
	frozenAtLast    int64          `snap:"skip"` // how long the node had been frozen by then
	refusals        []refusalCount `snap:"skip"`
}

// refusalCount counts how often the notification for a request was refused.
type refusalCount struct {
	request uint64
	count   uint32
}

func (s *proxyState) clearForReuse() { *s = proxyState{refusals: s.refusals[:0]} }

// reportDelayMax bounds how much later than the oracle the machine may be notified of a failure.
const reportDelayMax = effects.Second

// recordConnect records that the machine tries again.
func (or *proxyOracle) recordConnect(n *world.Node, c *world.Conn) {
	if c.Channel == effects.ChannelProxy {
		state := or.stateOf(n)
		state.conn, state.retryBy = c.ID, 0
	}
}

// handleOpened records that a connection could not be made, which may be the connection to the proxy.
func (or *proxyOracle) handleOpened(n *world.Node, ev *effects.Opened) {
	if c := or.w.ConnOf(or.stateOf(n).conn); ev.Code != effects.OK && c != nil && c.Closed && !c.OpenReported && or.stateOf(n).retryBy == 0 {
		or.expectRetry(n)
	}
}

// expectRetry records that a notification or an attempt to connect failed, so that the machine must try again in time.
func (or *proxyOracle) expectRetry(n *world.Node) {
	state := or.stateOf(n)
	state.lastAt, state.frozenAtLast = or.w.Now, n.FrozenTime
	state.retryBy, state.frozenAtFailure = or.w.Now+int64(n.LongestSpan(pd.InfoOf(n).Cfg.BackoffMax)+reportDelayMax+pd.Grace), n.FrozenTime
}

// recordNotification records the result of a notification. After the maximum number of refusals the node gives the
// notification up, and may have no further notification.
func (or *proxyOracle) recordNotification(n *world.Node, m *protocol.ProxyNotif, accepted bool) {
	request, state := or.w.JobIndex(m.RequestID), or.stateOf(n)
	or.verifyWait(n, request)
	or.verifyRank(n, m)
	or.verifyTries(n, request)
	if state.retryBy, state.lastAt, state.frozenAtLast = 0, or.w.Now, n.FrozenTime; accepted {
		return
	}
	at := len(state.refusals)
	for i := range state.refusals {
		if state.refusals[i].request == request {
			at = i
		}
	}
	if at == len(state.refusals) {
		state.refusals = append(state.refusals, refusalCount{request: request})
	}
	if state.refusals[at].count++; state.refusals[at].count < cmp.Or(pd.InfoOf(n).Cfg.Tuning.TellsMax, 10) {
		or.expectRetry(n)
	}
}

// verifyAddr checks that a node connects to the proxy at the configured address.
func (or *proxyOracle) verifyAddr(n *world.Node, e *effects.Open) {
	if n.Custom || e.Channel != effects.ChannelProxy {
		return
	}
	if or.countJudged(checkProxyAddr); e.Addr != pd.InfoOf(n).Cfg.Proxy {
		or.fail(checkProxyAddr, "node %d connects to the proxy at %v, which is at %v", n.AsSubject(), e.Addr, pd.InfoOf(n).Cfg.Proxy)
	}
}

// verifyRank checks that a notification names the rank of its node, by which a proxy knows whether all ranks of a
// request have ended.
func (or *proxyOracle) verifyRank(n *world.Node, m *protocol.ProxyNotif) {
	if or.w.Script != nil {
		return // A script sends the messages of the contract's scenarios.
	}
	if or.countJudged(checkProxyAddr); !m.HasExt || m.Rank != pd.InfoOf(n).Cfg.Rank {
		or.fail(checkProxyAddr, "node %d notifies the proxy as rank %d, and is rank %d", n.AsSubject(), m.Rank, pd.InfoOf(n).Cfg.Rank)
	}
}

// verifyTries checks that the node has not given the notification of a request up.
func (or *proxyOracle) verifyTries(n *world.Node, request uint64) {
	or.countJudged(checkProxyTries)
	most := cmp.Or(pd.InfoOf(n).Cfg.Tuning.TellsMax, 10)
	for _, r := range or.stateOf(n).refusals {
		if r.request == request && r.count >= most {
			or.fail(checkProxyTries, "node %d notifies the proxy of request %q once more after %d attempts, which is the most",
				n.AsSubject(), oracle.Request(or.w.Jobs[request].Name), most)
			return
		}
	}
}

// afterStep checks that the machine has tried again in time.
func (or *proxyOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	if state.retryBy == 0 {
		return
	}
	or.countJudged(checkProxyTried)
	if or.w.Now > state.retryBy+n.FrozenTime-state.frozenAtFailure {
		or.fail(checkProxyTried, "node %d has not tried to notify the proxy for longer than %d ns since the last failure",
			n.AsSubject(), pd.InfoOf(n).Cfg.BackoffMax)
	}
}

// verifyWait checks that a notification waited only for the previous notification and for a connection.
func (or *proxyOracle) verifyWait(n *world.Node, request uint64) {
	if request >= uint64(len(or.w.Jobs)) {
		return
	}
	j, state, since := &or.w.Jobs[request], or.stateOf(n), int64(0)
	for i := range j.Batches {
		put := j.Batches[i].Put
		if put == 0 || !or.w.Commands[put-1].Finished || or.w.Commands[put-1].HoldsMemory || or.w.Commands[put-1].Incarnation != n.Incarnation {
			return // The machine may be notified later of an outcome that it did not cause.
		}
		since = max(since, or.w.Commands[put-1].FinishedAt)
	}
	or.countJudged(checkProxyNext)
	limit := n.LongestSpan(pd.InfoOf(n).Cfg.BackoffMax) + 2*reportDelayMax + pd.Grace
	if waited := or.w.Now - max(since, state.lastAt) - (n.FrozenTime - state.frozenAtLast); state.lastAt > 0 && waited > int64(limit) {
		or.fail(checkProxyNext, "node %d notifies the proxy of request %q %d ns later than possible",
			n.AsSubject(), oracle.Request(j.Name), waited)
	}
}

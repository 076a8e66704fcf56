package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// If no process listens at a receiver's address, senders learn that when they connect. A put that waits for the
// connection must end at that moment with the code Unreachable, and must not wait for its deadline. A put that is
// issued later must try to connect again (L1).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWaitUnreachable = oracle.NewCheck("L1", "puts to an address where no process listens")
	checkPutEndsEarly    = oracle.NewCheck("L1", "puts that end before their deadline")
)

// unreachableOracle judges the outcomes of puts to a receiver at whose address no process listens.
type unreachableOracle struct {
	oracleBase
	perIncarnation[unreachableState]
}

func (*unreachableOracle) subscribe(l *oracle.Subscriptions[unreachableOracle]) {
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e world.OpeningConn) { o.recordConnect(e.Node, e.Conn) })
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e world.SendingRequest) { o.recordRequest(e.Node, e.Conn) })
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e world.ServerUnreachable) {
		o.recordUnreachable(e.Node, e.Conn)
	})
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e world.UnreachableReported) {
		o.handleUnreachable(e.Node, e.Conn)
	})
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e pd.PutOutcome) {
		o.verifyEarlyEnd(e.Node, e.Command, e.Effect.Code)
	})
	oracle.On(l, func(o *unreachableOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// unreachableState records an incarnation of a sender.
type unreachableState struct {
	receivers []receiverRecord `snap:"skip"` // by the receiver's node; empty before the first
}

func (s *unreachableState) clearForReuse() { *s = unreachableState{receivers: s.receivers[:0]} }

// receiverRecord records the messages of an incarnation of a sender to a receiver, and the failures to connect.
type receiverRecord struct {
	conn            uint64 // the newest connection for a handshake
	sentStep        uint64 // the step in which the sender last sent an allocation request or an offer
	unreachableStep uint64 // the step in which the sender was last notified that no process listens
	pendingStep     uint64 // the same step while the machine has work left and may still have to end puts; otherwise 0
}

// recordOf returns the record of a sender about a receiver.
func (or *unreachableOracle) recordOf(n *world.Node, receiver int32) *receiverRecord {
	state := or.stateOf(n)
	for len(state.receivers) < len(or.w.Nodes) {
		state.receivers = append(state.receivers, receiverRecord{})
	}
	return &state.receivers[receiver]
}

// recordConnect records a connection that a sender makes.
func (or *unreachableOracle) recordConnect(n *world.Node, c *world.Conn) {
	if n.IsSender() && c.Channel == effects.ChannelInit && c.Server >= 0 {
		a := or.recordOf(n, c.Server)
		if a.pendingStep != 0 { // The waiting puts are about to be notified anew.
			or.countVoid(checkWaitUnreachable)
		}
		a.conn, a.pendingStep = c.ID, 0
	}
}

// recordRequest records that a put is in progress. What the sender knew of the receiver before is no reason for the
// put's end any more.
func (or *unreachableOracle) recordRequest(n *world.Node, c *world.Conn) {
	if n.IsSender() && c.Channel == effects.ChannelAlloc && c.Server >= 0 {
		or.recordOf(n, c.Server).sentStep = n.StepCount
	}
}

// recordUnreachable records that a sender is notified in the next step that no process listens on a port of the
// receiver.
func (or *unreachableOracle) recordUnreachable(n *world.Node, c *world.Conn) {
	if n.IsSender() && c.Server >= 0 {
		or.recordOf(n, c.Server).unreachableStep = n.StepCount + 1
	}
}

// handleUnreachable checks that no earlier put waits for the receiver, once the sender was notified that no process
// listens and has no more work for that instant. A put that was in progress once may have more to wait for, and an
// attempt that took too long was given up already.
func (or *unreachableOracle) handleUnreachable(n *world.Node, c *world.Conn) {
	if !n.IsSender() || c.Channel != effects.ChannelInit || c.Server < 0 || or.w.Failure != nil {
		return
	}
	a := or.recordOf(n, c.Server)
	// It may connect for renewals, or for chunks.
	if n.IsReceiver() && or.w.Nodes[c.Server].OffersChunks || or.w.Flows.AnyRequestsChunks() {
		or.countVoid(checkWaitUnreachable)
		return
	}
	if n.Busy || a.conn != c.ID || or.w.ReadClock(n) >= c.Opened.Add(pd.InfoOf(n).Cfg.ReplyTimeout) {
		or.countVoid(checkWaitUnreachable)
		return
	}
	a.pendingStep = n.StepCount
	or.afterStep(n)
}

// afterStep judges the checks that were due when the machine had more work.
func (or *unreachableOracle) afterStep(n *world.Node) {
	if n.Busy || !n.IsSender() {
		return
	}
	state := or.stateOf(n)
	for receiver := range state.receivers {
		if a := &state.receivers[receiver]; a.pendingStep != 0 && or.w.Failure == nil {
			or.verifyNoPutWaits(n, int32(receiver), a)
			a.pendingStep = 0
		}
	}
}

// verifyNoPutWaits checks that no put waits for a receiver after the sender was notified that no process listens there.
func (or *unreachableOracle) verifyNoPutWaits(n *world.Node, receiver int32, a *receiverRecord) {
	or.countJudged(checkWaitUnreachable)
	for _, t := range or.w.OpenCommands.Items {
		p := &or.w.Commands[t-1]
		if p.Kind != plan.CommandPut || p.Finished || p.Node != n.ID || p.Incarnation != n.Incarnation {
			continue
		}
		if p.ReceivedStep == 0 || p.ReceivedStep <= a.sentStep || p.ReceivedStep >= a.pendingStep {
			continue
		}
		if j := &or.w.Jobs[p.Job]; j.Receiver == receiver && !j.PlainTo {
			or.fail(checkWaitUnreachable, "node %d lets ticket %d (put) wait although no process listens at node %d",
				n.AsSubject(), oracle.Ticket(t), oracle.Node(receiver))
			return
		}
	}
}

// connectFailureCodes are the codes of failed attempts to connect that say nothing about the put or about the peer's
// configuration.
var connectFailureCodes = []effects.Code{effects.Unreachable, effects.Expired, effects.PeerLost, effects.Refused,
	effects.Faulted, effects.Closed, effects.Stale}

// verifyEarlyEnd checks that a put which was never in progress ends early only because of an attempt to connect that
// was made for this put.
func (or *unreachableOracle) verifyEarlyEnd(n *world.Node, c *pd.Command, code effects.Code) {
	if code == effects.OK {
		return
	}
	if !slices.Contains(connectFailureCodes, code) || or.w.Jobs[c.Job].PlainTo {
		or.countVoid(checkPutEndsEarly)
		return // The put or the peer is misconfigured, or the sender backs off from the receiver.
	}
	or.countJudged(checkPutEndsEarly)
	a := or.recordOf(n, or.w.Jobs[c.Job].Receiver)
	receivedAt := c.DueAt - int64(n.LongestSpan(c.Timeout)+pd.Grace)
	found := c.ReceivedStep < a.unreachableStep && code == effects.Unreachable
	if early := or.w.Now-receivedAt < int64(c.Timeout)*9/10; early && c.ReceivedStep > a.sentStep && !found {
		or.fail(checkPutEndsEarly, "node %d ends a put as %s although since the put was issued the sender has not learned that nobody "+
			"listens at node %d: no handshake failed, and no connection was refused as unreachable", n.AsSubject(), code,
			oracle.Node(or.w.Jobs[c.Job].Receiver))
	}
}

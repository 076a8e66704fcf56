package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Where processes prove identities, the driver passes with each message what its sender proved. A machine must do
// nothing for a message of a sender without the role for it, or in the name of another identity: after the message it
// is what it would be after a tick.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRole          = oracle.NewCheck("S28", "messages of identities without the role")
	checkRoleReply     = oracle.NewCheck("S28", "replies to identities without the role")
	checkAllowed       = oracle.NewCheck("S28", "replies to identities with the role")
	checkOtherIdentity = oracle.NewCheck("S29", "messages in the name of another identity")
	checkOtherReply    = oracle.NewCheck("S29", "replies to messages in the name of another identity")
	checkOtherHello    = oracle.NewCheck("S29", "hellos in the name of another identity")
	checkTenant        = oracle.NewCheck("S31", "messages that name chunks of another tenant")
	checkTenantReply   = oracle.NewCheck("S31", "replies to messages that name chunks of another tenant")
)

// trustOracle judges what identities may do.
type trustOracle struct {
	oracleBase
	copies *pd.MachineCopies `snap:"share"`   // makes ticked
	ticked *rank.Rank        `snap:"scratch"` // what a tick makes of the machine
	wanted []effects.Kind    `snap:"scratch"` // the kinds of the effects of that tick
	isVoid bool              `snap:"scratch"`
}

// stateCheck returns the check of the machine after a message that must change nothing.
func stateCheck(k world.ForbiddenKind) oracle.Check {
	switch k {
	case world.OtherIdentity:
		return checkOtherIdentity
	case world.OtherHello:
		return checkOtherHello
	case world.OtherTenant:
		return checkTenant
	case world.NoRole:
	}
	return checkRole
}

// replyCheck returns the check of the reply to such a message.
func replyCheck(k world.ForbiddenKind) oracle.Check {
	switch k {
	case world.NoRole:
		return checkRoleReply
	case world.OtherTenant:
		return checkTenantReply
	case world.OtherIdentity, world.OtherHello:
	}
	return checkOtherReply
}

func (*trustOracle) subscribe(l *oracle.Subscriptions[trustOracle]) {
	oracle.On(l, func(o *trustOracle, _ *oracle.Call, e world.ForbiddenMessage) {
		o.tickCopy(e.Node, e.Kind)
	})
	oracle.On(l, func(o *trustOracle, _ *oracle.Call, e world.ForbiddenEnded) {
		if !o.isVoid {
			o.compareWithTick(&e)
		}
		o.checkRefusal(&e)
	})
	oracle.On(l, func(o *trustOracle, _ *oracle.Call, e world.SendingReply) {
		if len(o.w.SourcePlan.Topology.Identities) > 0 {
			o.checkReply(e.Node, &o.w.Requests[e.Request-1], e.Body)
		}
	})
}

// tickCopy ticks a copy of n's machine, with which the machine is compared after the message.
func (o *trustOracle) tickCopy(n *world.Node, k world.ForbiddenKind) {
	if o.copies == nil {
		o.copies = &pd.MachineCopies{}
	}
	o.ticked = o.copies.CopyOf(n)
	if o.wanted, o.isVoid = o.copies.TickCopy(o.ticked, o.w.ReadClock(n)); o.isVoid {
		o.countVoid(stateCheck(k)) // A message has a part in the work of its step, so the machine may do less besides.
	}
}

// codeOf returns the code that a reply on a channel states, or reports false if it states none.
func codeOf(channel effects.Channel, body []byte) (effects.Code, bool) {
	decodes := func(m protocol.Message) bool { return m.Decode(body, &pd.WireLimits) == nil }
	switch channel {
	case effects.ChannelInit:
		var ready protocol.HixlReadyResponse
		var hello protocol.HixlInitResponse
		if decodes(&ready) {
			return effects.Code(ready.Code), true
		}
		if decodes(&hello) {
			return effects.Code(hello.Ext.Code), hello.HasExt
		}
	case effects.ChannelAlloc:
		var alloc protocol.AllocResponse
		var ack protocol.PullReadyDoneAck
		var end protocol.EndResponse
		switch {
		case decodes(&end):
			return effects.Code(end.Code), true
		case decodes(&ack):
			return effects.Code(ack.Ext.Code), ack.HasExt
		case decodes(&alloc):
			return effects.Code(alloc.Ext.Code), alloc.HasExt
		}
	case effects.ChannelQuery:
		var query protocol.CacheQueryResponse
		return effects.Code(query.Ext.Code), decodes(&query) && query.HasExt
	case effects.ChannelLookup:
		var get protocol.AscendBatchedLookupAndGetRetMsg
		return effects.Code(get.Ext.Code), decodes(&get) && get.HasExt
	case effects.ChannelRegister:
		var end protocol.PushEnd
		return effects.Code(end.Code), decodes(&end)
	default:
	}
	return 0, false
}

// tellsAnything reports whether a reply tells more than that a message was refused: pages, hits, or addresses.
func tellsAnything(channel effects.Channel, body []byte) bool {
	decodes := func(m protocol.Message) bool { return m.Decode(body, &pd.WireLimits) == nil }
	switch channel {
	case effects.ChannelInit:
		return decodes(new(protocol.HixlMemInfoResponse)) || decodes(new(protocol.P2PInitSideRetMsg))
	case effects.ChannelAlloc:
		var alloc protocol.AllocResponse
		return decodes(&alloc) && !alloc.AllocFailed && len(alloc.AlreadySent)+len(alloc.RemoteIndexes) > 0
	case effects.ChannelQuery:
		var query protocol.CacheQueryResponse
		return decodes(&query) && (len(query.CachedKeys) > 0 || query.Ext.Grant != 0)
	case effects.ChannelLookup:
		var get protocol.AscendBatchedLookupAndGetRetMsg
		return decodes(new(protocol.AscendQueryDonePortRetMsg)) || decodes(&get) && get.HitChunks > 0
	default:
		return false
	}
}

// checkReply checks that no message of a node is forbidden: each node has the roles that it needs, and names of its
// own.
func (o *trustOracle) checkReply(n *world.Node, r *world.Request, body []byte) {
	if n.Custom || !r.IsFromNode() || r.Conn.Client < 0 {
		return
	}
	if x := o.w.Nodes[r.Conn.Client]; x.ForbiddenUntil > 0 && x.ForbiddenFrom <= o.w.Now {
		o.countVoid(checkAllowed) // The message may have arrived while the policy gave the node no role.
		return
	}
	if code, isCoded := codeOf(r.Channel, body); isCoded {
		if o.countJudged(checkAllowed); code == effects.Forbidden {
			o.fail(checkAllowed, "node %d forbids a message of node %d on %s, which has the role for it and names of its own",
				n.AsSubject(), oracle.Node(r.Conn.Client), r.Channel)
		}
	}
}

// compareWithTick compares the machine with what a tick would have made of it.
func (o *trustOracle) compareWithTick(e *world.ForbiddenEnded) {
	n := e.Node
	if o.copies.HasWorkAt(n, o.w.ReadClock(n)) { // Looking for what the message names has used up the budget of the step.
		o.countVoid(stateCheck(e.Kind))
		return
	}
	o.countJudged(stateCheck(e.Kind))
	if !o.copies.Equals(n, o.ticked, o.w.ReadClock(n)) {
		o.fail(stateCheck(e.Kind), "node %d has changed by message %d on %s, which its sender must not send", n.AsSubject(),
			oracle.Message(e.Event.Request), e.Event.Channel)
		return
	}
	if kinds := pd.KindsOf(e.Effects, e.Event.Request); !slices.Equal(kinds, o.wanted) {
		o.fail(stateCheck(e.Kind), "node %d emits %v for message %d on %s, which its sender must not send; a tick leads to %v",
			n.AsSubject(), kinds, oracle.Message(e.Event.Request), e.Event.Channel, o.wanted)
	}
}

// checkRefusal checks that a message that must change nothing is refused in a form that its sender can decode, where
// the kind of message has such a form, and that a hello is not told the name that is for another peer.
func (o *trustOracle) checkRefusal(e *world.ForbiddenEnded) {
	for i := range e.Effects.Len() {
		if x, ok := e.Effects.At(i).(*effects.Reply); ok && x.Request == e.Event.Request && tellsAnything(e.Event.Channel, x.Body) {
			o.fail(replyCheck(e.Kind), "node %d answers message %d on %s with what only peers may learn", e.Node.AsSubject(),
				oracle.Message(e.Event.Request), e.Event.Channel)
		}
	}
	if !e.IsCoded {
		return
	}
	o.countJudged(replyCheck(e.Kind))
	replies, code := 0, effects.OK
	for i := range e.Effects.Len() {
		x, ok := e.Effects.At(i).(*effects.Reply)
		if !ok || x.Request != e.Event.Request {
			continue
		}
		replies++
		if stated, isCoded := codeOf(e.Event.Channel, x.Body); isCoded {
			code = stated
		}
		var hello protocol.HixlInitResponse
		if e.Hidden != (effects.Incarnation{}) && hello.Decode(x.Body, &pd.WireLimits) == nil &&
			effects.Incarnation(hello.Ext.Incarnation) == e.Hidden {
			o.fail(replyCheck(e.Kind), "node %d tells its name to the sender of message %d, which is not the peer that it is for",
				e.Node.AsSubject(), oracle.Message(e.Event.Request))
		}
	}
	if replies != 1 || code != effects.Forbidden && (code != effects.Stale || !e.MayBeOld) {
		o.fail(replyCheck(e.Kind), "node %d answers message %d on %s with %d replies and code %s, although its sender must not send it",
			e.Node.AsSubject(), oracle.Message(e.Event.Request), e.Event.Channel, replies, code)
	}
}

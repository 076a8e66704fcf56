package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkBufferID = oracle.NewCheck("S12", "buffer ids of new incarnations")

// runFacts holds the facts about a run that several oracles need: which incarnation owns which memory, which keys
// exist, and where each key became whole. The facts are taken from what drivers saw, never from what a machine claims.
// Each message is decoded here at most once, however many oracles look at the message.
type runFacts struct {
	oracleBase
	incarnations map[incarnationKey]effects.Incarnation `snap:"skip"`
	wholeKeys    [][]bool                               // by node and key: whether the key ever became whole at the node
	turn         uint64                                 `snap:"scratch"` // counts the messages that oracles look at
	request      decodeCache[protocol.AllocRequest]     `snap:"scratch"`
	reply        decodeCache[protocol.AllocResponse]    `snap:"scratch"`
	offer        decodeCache[protocol.PullReadyNotif]   `snap:"scratch"`
	ack          decodeCache[protocol.PullReadyDoneAck] `snap:"scratch"`
	hasRequest   bool                                   `snap:"scratch"` // request holds the request that the current reply answers
	hasReply     bool                                   `snap:"scratch"` // reply holds that reply
	done         protocol.PullDoneSignal                `snap:"scratch"`
	pendingAlloc protocol.AllocRequest                  // decoded from the message of a waiter
	pendingOffer protocol.PullReadyNotif
	stats        rank.Stats `snap:"scratch"` // the counts of the machine that has just made a step
}

// The events that runFacts reports to the oracles.
type (
	// stepCounted reports that a machine has made a step. The oracles compare the machine's counts with what drivers
	// saw. The field held is the number of pages that were in use before any oracle handled the step.
	//
	// A promise that holds "at once" is checked when the machine has no more work for that instant. A machine may split
	// a large piece of work into steps, with an immediate deadline (n.Busy). Package world checks that the work ends
	// (busyStepsMax).
	stepCounted struct {
		node  *world.Node
		stats *rank.Stats
		held  int
	}
	// messageReceived reports that a node receives a message on a channel of push or pull.
	messageReceived struct {
		node    *world.Node
		request uint64
		channel effects.Channel
		conn    uint64
		body    []byte
	}
)

var (
	onStepCounted     = oracle.NewHappening[stepCounted]()
	onMessageReceived = oracle.NewHappening[messageReceived]()
)

func (*runFacts) subscribe(l *oracle.Subscriptions[runFacts]) {
	oracle.On(l, func(o *runFacts, _ *oracle.Call, e world.NodeStarted) { o.recordIncarnation(e.Node, e.Buffer) })
	oracle.On(l, func(o *runFacts, _ *oracle.Call, e world.SteppingMachine) { o.w.CountStep(e.Node, e.Kind, e.Event) })
	oracle.On(l, func(o *runFacts, c *oracle.Call, _ oracle.StepEnded) {
		n := o.nodeOf(c)
		o.stats = pd.StatsOf(n)
		onStepCounted.Report(&o.w.Panel, n.ID, stepCounted{n, &o.stats, n.Pool.InUseCount})
	})
	oracle.On(l, func(o *runFacts, _ *oracle.Call, e world.MessageReceived) {
		o.turn++
		d := &e.Delivery
		//exhaustive:ignore
		switch ch := effects.Channel(d.B); ch { // The channels of the first case have oracles of their own.
		case effects.ChannelDone, effects.ChannelQuery, effects.ChannelLookup, effects.ChannelPeerDone,
			effects.ChannelRegister:
		default:
			onMessageReceived.Report(&o.w.Panel, e.Node.ID, messageReceived{e.Node, d.C, ch, d.A, d.Body})
		}
	})
	oracle.On(l, func(o *runFacts, _ *oracle.Call, _ world.ReplyReceived) { o.turn++ })
	oracle.On(l, func(o *runFacts, _ *oracle.Call, _ world.SendingRequest) { o.turn++ })
	oracle.On(l, func(o *runFacts, _ *oracle.Call, _ world.SendingReply) { o.turn++ })
	oracle.On(l, func(o *runFacts, _ *oracle.Call, e world.NodeRestarted) { o.w.CountFrozenReceivers(e.Node) })
	oracle.On(l, func(o *runFacts, _ *oracle.Call, _ world.ReplyAfterClose) {
		pd.CountConjunction(&o.w.Result, pd.ReplyAfterClose)
	})
}

// decodeCache caches a message that was decoded as a message of kind M, because several oracles look at each message.
type decodeCache[M any] struct {
	message M
	turn    uint64 // the turn of the decoded message
	matches bool   // whether the message is of kind M
}

// decoder is a message that can be decoded from the wire format.
type decoder[M any] interface {
	*M
	Decode(b []byte, lim *protocol.Limits) error
}

// decodeOnce decodes the message of a turn, unless that has been done. The results are the decoded message and whether
// the message is of kind M. The decoded message is valid while the bytes of the message are valid, and until a message
// is decoded into g again.
func decodeOnce[M any, P decoder[M]](g *decodeCache[M], turn uint64, body []byte) (*M, bool) {
	if g.turn != turn {
		g.turn, g.matches = turn, P(&g.message).Decode(body, &pd.WireLimits) == nil
	}
	return &g.message, g.matches
}

// The following methods decode the message of the current turn as a message of a given kind. Each method returns early,
// without decoding, if the tag of the message shows a different kind.

func (t *runFacts) asRequest(body []byte) (*protocol.AllocRequest, bool) {
	if !protocol.MayHaveTag(body, protocol.TagAllocRequest, &pd.WireLimits) {
		return nil, false
	}
	return decodeOnce(&t.request, t.turn, body)
}

func (t *runFacts) asOffer(body []byte) (*protocol.PullReadyNotif, bool) {
	if !protocol.MayHaveTag(body, protocol.TagPullReadyNotif, &pd.WireLimits) {
		return nil, false
	}
	return decodeOnce(&t.offer, t.turn, body)
}

func (t *runFacts) asAck(body []byte) (*protocol.PullReadyDoneAck, bool) {
	if !protocol.MayHaveTag(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return decodeOnce(&t.ack, t.turn, body)
}

func (t *runFacts) asReply(body []byte) (*protocol.AllocResponse, bool) {
	if !protocol.MayHaveTag(body, protocol.TagAscendAllocResponse, &pd.WireLimits) &&
		!protocol.MayHaveTag(body, protocol.TagAllocResponse, &pd.WireLimits) ||
		protocol.MayHaveTag(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return decodeOnce(&t.reply, t.turn, body)
}

// decodeReply decodes the reply to a waiting request, and the request. It also records whether the request is an
// allocation request, and whether the reply is an allocation response.
func (t *runFacts) decodeReply(w *pendingRequest, answer []byte) {
	if t.hasRequest = len(w.body) > 0; t.hasRequest && (!w.isNew || w.turn != t.request.turn) {
		t.turn++
		_, t.hasRequest = t.asRequest(w.body)
	}
	t.turn++
	_, t.hasReply = t.asReply(answer)
}

// incarnationKey identifies an incarnation of a node by number.
type incarnationKey struct {
	node        int32
	incarnation uint32
}

// reset empties the facts at the begin of a run.
func (or *runFacts) reset(int) {
	w := or.w
	or.wholeKeys, or.incarnations = or.wholeKeys[:0], world.RecycleMap(or.incarnations)
	for range w.SourcePlan.NodeCount() {
		or.wholeKeys = append(or.wholeKeys, w.Arenas.Bools.Alloc(len(w.Keys)))
	}
}

// recordIncarnation records the identity of a new incarnation of n, and checks that no earlier incarnation had the same
// buffer id (S12).
func (or *runFacts) recordIncarnation(n *world.Node, b effects.BufferID) {
	or.countJudged(checkBufferID)
	if old := or.w.Buffers[b]; old != nil {
		or.fail(checkBufferID, "node %d starts with the buffer id of another incarnation", n.AsSubject())
	}
	or.incarnations[incarnationKey{n.ID, n.Incarnation}] = pd.InfoOf(n).Incarnation
}

// incarnationOf returns the identity of an incarnation of a node.
func (or *runFacts) incarnationOf(node int32, incarnation uint32) effects.Incarnation {
	return or.incarnations[incarnationKey{node, incarnation}]
}

// keyOfHash returns the key with a given hash in the current incarnation of n, and whether there is such a key.
func (or *runFacts) keyOfHash(n *world.Node, hash uint64) (uint32, bool) {
	k, ok := n.Keys[hash]
	if ok {
		return k, true
	}
	// Keys that were added since the last search have higher numbers, except for keys that a test adds. Therefore the
	// search begins at n.Known, and is repeated from 0 if no key is found.
	for _, from := range [...]int{n.NumberedKeys, 0} {
		for k, text := range or.w.Keys[from:] {
			if text != nil {
				n.NumberedKeys = max(n.NumberedKeys, from+k+1)
				n.Keys[pd.KeyHashOf(n, text)] = uint32(from + k)
			}
		}
		if k, ok = n.Keys[hash]; ok {
			break
		}
	}
	return k, ok
}

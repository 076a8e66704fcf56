package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkBufferOfLife = oracle.NewCheck("S12", "buffers of new incarnations")

// truth holds the facts about a run that several oracles need: which incarnation owns which memory, which keys exist,
// and where each key became whole. The facts are taken from what drivers saw, never from what a machine claims. Each
// message is decoded here at most once, however many oracles look at the message.
type truth struct {
	judge
	lives   map[lifeID]effects.Incarnation    `snap:"skip"`
	stored  [][]bool                          // by node and key: whether the key ever became whole at the node
	turn    uint64                            `snap:"scratch"` // counts the messages that oracles look at
	request glance[protocol.AllocRequest]     `snap:"scratch"`
	reply   glance[protocol.AllocResponse]    `snap:"scratch"`
	offer   glance[protocol.PullReadyNotif]   `snap:"scratch"`
	ack     glance[protocol.PullReadyDoneAck] `snap:"scratch"`
	asks    bool                              `snap:"scratch"` // request holds the request that the current reply answers
	tells   bool                              `snap:"scratch"` // reply holds that reply
	done    protocol.PullDoneSignal           `snap:"scratch"`
	ask     protocol.AllocRequest             // decoded from the message of a waiter
	pull    protocol.PullReadyNotif
	stats   rank.Stats `snap:"scratch"` // the counts of the machine that has just made a step
}

// The events that truth reports to the oracles.
type (
	// counted reports that a machine has made a step. The oracles compare the machine's counts with what drivers saw.
	// The field held is the number of pages that were in use before any oracle handled the step.
	//
	// A promise that holds "at once" is checked when the machine has no more work for that instant. A machine may split
	// a large piece of work into steps, with an immediate deadline (n.Busy). Package world checks that the work ends
	// (busyMax).
	counted struct {
		node  *world.Node
		stats *rank.Stats
		held  int
	}
	// asked reports that a node receives a message on a channel of push or pull.
	asked struct {
		node    *world.Node
		request uint64
		channel effects.Channel
		conn    uint64
		body    []byte
	}
)

var (
	onCounted = oracle.NewHappening[counted]()
	onAsked   = oracle.NewHappening[asked]()
)

func (*truth) listen(l *oracle.Listen[truth]) {
	oracle.On(l, func(o *truth, _ *oracle.Call, e world.Started) { o.started(e.Node, e.Buffer) })
	oracle.On(l, func(o *truth, _ *oracle.Call, e world.Stepping) { o.w.Count(e.Node, e.Kind, e.Event) })
	oracle.On(l, func(o *truth, c *oracle.Call, _ oracle.Stepped) {
		n := o.node(c)
		o.stats = pd.StatsOf(n)
		onCounted.Report(&o.w.Panel, n.ID, counted{n, &o.stats, n.Pool.Held})
	})
	oracle.On(l, func(o *truth, _ *oracle.Call, e world.Received) {
		o.turn++
		d := &e.Delivery
		//exhaustive:ignore
		switch ch := effects.Channel(d.B); ch { // The channels of the first case have oracles of their own.
		case effects.ChannelDone, effects.ChannelQuery, effects.ChannelLookup, effects.ChannelPeerDone,
			effects.ChannelRegister:
		default:
			onAsked.Report(&o.w.Panel, e.Node.ID, asked{e.Node, d.C, ch, d.A, d.Body})
		}
	})
	oracle.On(l, func(o *truth, _ *oracle.Call, _ world.Replied) { o.turn++ })
	oracle.On(l, func(o *truth, _ *oracle.Call, _ world.Sending) { o.turn++ })
	oracle.On(l, func(o *truth, _ *oracle.Call, _ world.Replying) { o.turn++ })
	oracle.On(l, func(o *truth, _ *oracle.Call, e world.Restarted) { o.w.RestartMeets(e.Node) })
	oracle.On(l, func(o *truth, _ *oracle.Call, _ world.AnsweredClosed) { pd.Met(&o.w.Result, pd.AnsweredAfterClose) })
}

// glance caches a message that was decoded as a message of kind M, because several oracles look at each message.
type glance[M any] struct {
	m  M
	of uint64 // the turn of the decoded message
	is bool   // whether the message is of kind M
}

// decoder is a message that can be decoded from the wire format.
type decoder[M any] interface {
	*M
	Decode(b []byte, lim *protocol.Limits) error
}

// at decodes the message of a turn, unless that has been done. The results are the decoded message and whether the
// message is of kind M. The decoded message is valid while the bytes of the message are valid, and until a message is
// decoded into g again.
func at[M any, P decoder[M]](g *glance[M], turn uint64, body []byte) (*M, bool) {
	if g.of != turn {
		g.of, g.is = turn, P(&g.m).Decode(body, &pd.WireLimits) == nil
	}
	return &g.m, g.is
}

// The following methods decode the message of the current turn as a message of a given kind. Each method returns early,
// without decoding, if the tag of the message shows a different kind.

func (t *truth) asRequest(body []byte) (*protocol.AllocRequest, bool) {
	if !protocol.MayHaveTag(body, protocol.TagAllocRequest, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.request, t.turn, body)
}

func (t *truth) asOffer(body []byte) (*protocol.PullReadyNotif, bool) {
	if !protocol.MayHaveTag(body, protocol.TagPullReadyNotif, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.offer, t.turn, body)
}

func (t *truth) asAck(body []byte) (*protocol.PullReadyDoneAck, bool) {
	if !protocol.MayHaveTag(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.ack, t.turn, body)
}

func (t *truth) asReply(body []byte) (*protocol.AllocResponse, bool) {
	if !protocol.MayHaveTag(body, protocol.TagAscendAllocResponse, &pd.WireLimits) &&
		!protocol.MayHaveTag(body, protocol.TagAllocResponse, &pd.WireLimits) ||
		protocol.MayHaveTag(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.reply, t.turn, body)
}

// read decodes the reply to a waiting request, and the request. It also records whether the request is an allocation
// request, and whether the reply is an allocation response.
func (t *truth) read(w *waiter, answer []byte) {
	if t.asks = len(w.body) > 0; t.asks && (!w.fresh || w.turn != t.request.of) {
		t.turn++
		_, t.asks = t.asRequest(w.body)
	}
	t.turn++
	_, t.tells = t.asReply(answer)
}

// lifeID identifies an incarnation of a node by number.
type lifeID struct {
	node int32
	life uint32
}

// reset empties the facts at the begin of a run.
func (or *truth) reset(int) {
	w := or.w
	or.stored, or.lives = or.stored[:0], world.Emptied(or.lives)
	for range w.Source.NodeCount() {
		or.stored = append(or.stored, w.Stock.Flags.Take(len(w.Keys)))
	}
}

// started records the identity of a new incarnation of n, and checks that no earlier incarnation had the same buffer id
// (S12).
func (or *truth) started(n *world.Node, b effects.BufferID) {
	or.judged(checkBufferOfLife)
	if old := or.w.Buffers[b]; old != nil {
		or.fail(checkBufferOfLife, "node %d starts with the buffer id of another incarnation", n.It())
	}
	or.lives[lifeID{n.ID, n.Life}] = pd.Its(n).Incarnation
}

// incarnation returns the identity of an incarnation of a node.
func (or *truth) incarnation(node int32, life uint32) effects.Incarnation {
	return or.lives[lifeID{node, life}]
}

// named returns the key with a given hash in the current incarnation of n, and whether there is such a key.
func (or *truth) named(n *world.Node, hash uint64) (uint32, bool) {
	k, ok := n.Keys[hash]
	if ok {
		return k, true
	}
	// Keys that were added since the last search have higher numbers, except for keys that a test adds. Therefore the
	// search begins at n.Known, and is repeated from 0 if no key is found.
	for _, from := range [...]int{n.Known, 0} {
		for k, text := range or.w.Keys[from:] {
			if text != nil {
				n.Known = max(n.Known, from+k+1)
				n.Keys[pd.KeyHashOf(n, text)] = uint32(from + k)
			}
		}
		if k, ok = n.Keys[hash]; ok {
			break
		}
	}
	return k, ok
}

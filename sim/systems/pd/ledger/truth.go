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

// truth is what several oracles have to know of a run: whose memory is whose, which keys there are and where they
// became whole, kept from what drivers saw and never from what a machine thinks.
type truth struct {
	judge
	lives   map[lifeID]effects.Incarnation    `snap:"skip"`
	stored  [][]bool                          // by node: the keys that ever became whole there
	turn    uint64                            `snap:"scratch"` // counts the messages that oracles look at
	request glance[protocol.AllocRequest]     `snap:"scratch"`
	reply   glance[protocol.AllocResponse]    `snap:"scratch"`
	offer   glance[protocol.PullReadyNotif]   `snap:"scratch"`
	ack     glance[protocol.PullReadyDoneAck] `snap:"scratch"`
	asks    bool                              `snap:"scratch"` // request is what an answer is to
	tells   bool                              `snap:"scratch"` // reply is that answer
	done    protocol.PullDoneSignal           `snap:"scratch"`
	ask     protocol.AllocRequest             // of one that waits, or waited
	pull    protocol.PullReadyNotif
	stats   rank.Stats `snap:"scratch"` // what the machine that has made a step counts
}

// What the truth reports to the oracles beside it.
type (
	// counted: a machine has made a step. Its counts are compared with what drivers saw. Held is how many pages were in
	// use before any of that.
	//
	// What is promised at once is promised for when a machine has no more work of that instant: it may cut what is much
	// into steps, with its deadline at once (n.Busy). That this ends is a promise too (busyMax of package world).
	counted struct {
		node  *world.Node
		stats *rank.Stats
		held  int
	}
	// asked: a node gets a message on a channel of push or pull.
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
		switch ch := effects.Channel(d.B); ch { // These have oracles of their own.
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

// A glance is what a message says that some oracle took for one of this kind. Several are told of each, and it is read
// once.
type glance[M any] struct {
	m  M
	of uint64 // the turn of that message
	is bool   // it is of this kind
}

// decoder is a message that can be read.
type decoder[M any] interface {
	*M
	Decode(b []byte, lim *protocol.Limits) error
}

// at looks at the message of a turn. It says whether it is of this kind, and what it says, as long as its bytes are
// there and no other one is looked at.
func at[M any, P decoder[M]](g *glance[M], turn uint64, body []byte) (*M, bool) {
	if g.of != turn {
		g.of, g.is = turn, P(&g.m).Decode(body, &pd.WireLimits) == nil
	}
	return &g.m, g.is
}

// The kinds of messages that most oracles look for in that of this turn, cheaply where it is of another kind.

func (t *truth) asRequest(body []byte) (*protocol.AllocRequest, bool) {
	if !protocol.MayBe(body, protocol.TagAllocRequest, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.request, t.turn, body)
}

func (t *truth) asOffer(body []byte) (*protocol.PullReadyNotif, bool) {
	if !protocol.MayBe(body, protocol.TagPullReadyNotif, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.offer, t.turn, body)
}

func (t *truth) asAck(body []byte) (*protocol.PullReadyDoneAck, bool) {
	if !protocol.MayBe(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.ack, t.turn, body)
}

func (t *truth) asReply(body []byte) (*protocol.AllocResponse, bool) {
	if !protocol.MayBe(body, protocol.TagAscendAllocResponse, &pd.WireLimits) &&
		!protocol.MayBe(body, protocol.TagAllocResponse, &pd.WireLimits) ||
		protocol.MayBe(body, protocol.TagPullReadyDoneAck, &pd.WireLimits) {
		return nil, false
	}
	return at(&t.reply, t.turn, body)
}

// read reads the answer to who waited, and what it is to: whether they are a request for pages and the answer to one.
func (t *truth) read(w *waiter, answer []byte) {
	if t.asks = len(w.body) > 0; t.asks && (!w.fresh || w.turn != t.request.of) {
		t.turn++
		_, t.asks = t.asRequest(w.body)
	}
	t.turn++
	_, t.tells = t.asReply(answer)
}

type lifeID struct {
	node int32
	life uint32
}

// reset empties it for a run.
func (or *truth) reset(int) {
	w := or.w
	or.stored, or.lives = or.stored[:0], world.Emptied(or.lives)
	for range w.Source.NodeCount() {
		or.stored = append(or.stored, w.Stock.Flags.Take(len(w.Keys)))
	}
}

// started notes a life with its memory, and checks that no life had that before.
func (or *truth) started(n *world.Node, b effects.BufferID) {
	or.judged(checkBufferOfLife)
	if old := or.w.Buffers[b]; old != nil {
		or.fail(checkBufferOfLife, "node %d starts with the buffer id of another incarnation", n.It())
	}
	or.lives[lifeID{n.ID, n.Life}] = pd.Its(n).Incarnation
}

// incarnation is the identity of a life.
func (or *truth) incarnation(node int32, life uint32) effects.Incarnation {
	return or.lives[lifeID{node, life}]
}

// named finds the key that a machine's hash means in this life.
func (or *truth) named(n *world.Node, hash uint64) (uint32, bool) {
	k, ok := n.Keys[hash]
	if ok {
		return k, true
	}
	// Those that came since are numbered higher, but for what a test may add.
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

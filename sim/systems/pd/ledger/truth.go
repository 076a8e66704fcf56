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
	lives   map[lifeID]effects.Incarnation `snap:"skip"`
	stored  [][]bool                       // by node: the keys that ever became whole there
	request protocol.AllocRequest          `snap:"scratch"` // read again and again
	reply   protocol.AllocResponse         `snap:"scratch"`
	asks    bool                           `snap:"scratch"` // request is what an answer is to
	tells   bool                           `snap:"scratch"` // reply is that answer
	offer   protocol.PullReadyNotif        `snap:"scratch"`
	ack     protocol.PullReadyDoneAck      `snap:"scratch"`
	done    protocol.PullDoneSignal        `snap:"scratch"`
	ask     protocol.AllocRequest          // of one that waits, or waited
	pull    protocol.PullReadyNotif
	stats   rank.Stats `snap:"scratch"` // what the machine that has made a step counts
}

// read reads an answer, and what it is to, once for all who look at them: whether they are a request for pages and the
// answer to one.
func (t *truth) read(request, answer []byte) {
	t.asks = len(request) > 0 && protocol.MayBe(request, protocol.TagAllocRequest, &pd.WireLimits) &&
		t.request.Decode(request, &pd.WireLimits) == nil
	t.tells = !protocol.MayBe(answer, protocol.TagPullReadyDoneAck, &pd.WireLimits) &&
		t.reply.Decode(answer, &pd.WireLimits) == nil
}

type lifeID struct {
	node int32
	life uint32
}

// begin empties it for a run.
func (or *truth) begin() {
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

// died forgets what a life's engine wanted.
func (or *truth) died(n *world.Node) {
	for _, t := range or.w.Undone.Some {
		c := &or.w.Commands[t-1]
		if c.Node == n.ID && c.Life == n.Life && (!c.Over || c.Held) {
			c.Over, c.Held = true, false
			or.w.Unfinished--
		}
	}
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

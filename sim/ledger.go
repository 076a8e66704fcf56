package sim

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

var checkBufferOfLife = newCheck("S12", "buffers of new lives")

// ledger is what the oracles know: the truth about pages, keys and promises, kept
// from what drivers saw and never from what a machine thinks. Every check names its
// property in docs/safety.md.
type ledger struct {
	w       *world
	fills   uint32                         `snap:"skip"`
	buffers map[effects.BufferID]*pool     `snap:"skip"`
	lives   map[lifeID]effects.Incarnation `snap:"skip"`
	stored  [][]bool                       // by node: the keys that ever became whole there
	keys    [][]byte                       `snap:"share"`   // by number
	request protocol.AllocRequest          `snap:"scratch"` // read again and again
	reply   protocol.AllocResponse         `snap:"scratch"`
	offer   protocol.PullReadyNotif        `snap:"scratch"`
	ack     protocol.PullReadyDoneAck      `snap:"scratch"`
	done    protocol.PullDoneSignal        `snap:"scratch"`
	ask     protocol.AllocRequest          // of one that waits, or waited
	pull    protocol.PullReadyNotif
}

type lifeID struct {
	node int32
	life uint32
}

func (l *ledger) init(w *world) {
	l.w = w
	l.buffers, l.lives = emptied(l.buffers), emptied(l.lives)
	keys := int(w.plan.keys) + w.plan.probesMax()
	if cap(l.keys) < keys {
		l.keys = make([][]byte, keys)
	}
	l.keys = l.keys[:keys]
	clear(l.keys)
	for range w.plan.Senders + w.plan.Receivers {
		l.stored = append(l.stored, w.stock.flags.take(keys))
	}
}

func (l *ledger) newFill() uint32 { l.fills++; return l.fills }

func (l *ledger) started(n *node, b effects.BufferID) {
	l.judged(checkBufferOfLife)
	if old := l.buffers[b]; old != nil {
		l.fail(checkBufferOfLife, "node %d starts with the buffer id of another life", n.it())
	}
	l.buffers[b] = n.pool
	l.lives[lifeID{n.id, n.life}] = n.incarnation
}

func (l *ledger) incarnation(node int32, life uint32) effects.Incarnation {
	return l.lives[lifeID{node, life}]
}

// died forgets what a life's engine wanted.
func (l *ledger) died(n *node) {
	for _, t := range l.w.going.commands.some {
		c := &l.w.commands[t-1]
		if c.node == n.id && c.life == n.life && (!c.over || c.held) {
			c.over, c.held = true, false
			l.w.unfinished--
		}
	}
}

// keyNumber is the number of a key.
func (l *ledger) keyNumber(name []byte) (uint32, bool) {
	for k, text := range l.keys {
		if text != nil && bytes.Equal(text, name) {
			return uint32(k), true
		}
	}
	return 0, false
}

// named finds the key that a machine's hash means in this life.
func (l *ledger) named(n *node, hash uint64) (uint32, bool) {
	k, ok := n.keys[hash]
	if ok {
		return k, true
	}
	// Those that came since are numbered higher, but for what a test may add.
	for _, from := range [...]int{n.known, 0} {
		for k, text := range l.keys[from:] {
			if text != nil {
				n.known = max(n.known, from+k+1)
				n.keys[n.keyHash(text)] = uint32(from + k)
			}
		}
		if k, ok = n.keys[hash]; ok {
			break
		}
	}
	return k, ok
}

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A wall lets nothing through between one node and all others: for its time, or, where
// it flaps, for every other part of it.
type wall struct {
	node        int32
	in, out     bool // what it keeps back
	from, until int64
	flap        int64 // how long it stands each time; 0: throughout
}

// heldUntil is when a message from one node to another can pass; 0: now.
func (w *world) heldUntil(from, to int32) (until int64) {
	for _, x := range w.walls {
		if concerns := x.out && x.node == from || x.in && x.node == to; !concerns || w.now >= x.until {
			continue
		}
		end := x.until
		if x.flap > 0 {
			nth := (w.now - x.from) / x.flap
			if nth%2 == 1 {
				continue
			}
			end = min(end, x.from+(nth+1)*x.flap)
		}
		until = max(until, end)
	}
	return until
}

// held is how long a partition holds back what goes from one node to another now.
func (w *world) held(from, to int32) effects.Duration {
	if until := w.heldUntil(from, to); until > 0 {
		return effects.Duration(until - w.now)
	}
	return 0
}

// Directions of a message on a connection, to name what strikes it.
const (
	toServer = iota
	toClient
)

// transit is how long the nth message of c, or its answer, takes, and whether it arrives at all. One that a
// partition holds back is sent again by the transport when that ends, unless the
// connection was given up meanwhile.
func (w *world) transit(c *conn, l draw.Label, direction int, nth uint64) (effects.Duration, bool) {
	delay := w.nthDraw(l, c, nth).Heavy(w.plan.Net)
	if d, yes := w.strikes(plan.FaultDelay, c.name, 2*nth+uint64(direction)); yes {
		delay += d.Span(0, effects.Second)
	}
	from, to := c.client, c.server
	if direction == toClient {
		from, to = to, from
	}
	if until := w.heldUntil(from, to); until > 0 {
		if w.nthDraw(l, c, nth).Again().Again().Permille(500) {
			c.dead = true
			return 0, false
		}
		delay += effects.Duration(until - w.now)
	}
	return delay, true
}

// mischief starts a scheduled fault.
func (w *world) mischief(x delivery) {
	f := &w.source.Faults[x.c]
	n := w.nodes[x.node]
	if w.healed || !n.up {
		return
	}
	w.journal.note(w.now, kindMischief, n.id, uint64(f.Fault), uint64(f.For), 0)
	switch until := w.now + int64(f.For); f.Fault {
	case plan.FaultTwice:
		n.twice, n.again = x.a == 0, x.c
		w.crash(n)
	case plan.FaultSlow:
		n.slow = max(n.slow, until)
	case plan.FaultPartition:
		w.walls = append(w.walls, wall{node: n.id, in: true, out: true, from: w.now, until: until})
	case plan.FaultDeafPartition:
		w.walls = append(w.walls, wall{node: n.id, out: true, from: w.now, until: until})
	case plan.FaultFlapping:
		w.walls = append(w.walls, wall{node: n.id, in: true, out: true, from: w.now, until: until, flap: int64(f.For)/int64(3+f.Pick%6) + 1})
	case plan.FaultReset:
		w.reset(n)
	default:
		w.system.mischief(w, n, f)
		return
	}
	if f.Fault != plan.FaultTwice || n.twice { // Its second crash is part of it.
		w.result.fault(f.Fault)
	}
}

// reset breaks every connection and link of a node, with what is under way on them.
func (w *world) reset(n *node) {
	for _, c := range w.conns {
		if c.client == n.id && c.life == n.life || c.server == n.id {
			w.cut(c, w.struck(plan.FaultUnnoticed, c.name, c.sent))
		}
	}
	for _, l := range w.links {
		if !l.lost && !l.dropped && (l.from == n.id && l.fromLife == n.life || l.target == n.pool) && w.nodes[l.from].up && w.nodes[l.from].life == l.fromLife {
			w.endLink(w.nodes[l.from], l, w.draw(draw.Notice, w.nodes[l.from]), true)
		}
	}
}

// drag makes a slow consumer's next step wait.
func (w *world) drag(n *node) {
	if n.slow <= w.now || w.healed {
		return
	}
	span := int64(w.draw(draw.Pause, n).Span(effects.Millisecond/10, 20*effects.Millisecond))
	n.thaw, n.frozen = max(n.thaw, w.now+span), n.frozen+span
	w.queue.push(n.thaw, delivery{kind: kindThaw, node: n.id, life: n.life})
}

// overheardMax is how many of the newest messages strangers know.
const overheardMax = 64

// overhear keeps a message for whoever would change it and send it again.
func (w *world) overhear(body []byte) {
	if !w.hostile {
		return
	}
	if len(w.overheard) < overheardMax {
		w.overheard = append(w.overheard, nil)
	}
	w.overheard[w.heard%overheardMax] = w.stock.bytes.keep(body)
	w.heard++
}

// anyPort draws one of the channels on which a node listens; noise comes to one that listens on none, too.
func (w *world) anyPort(n *node, d draw.Of) effects.Channel {
	ports := n.listens
	if len(ports) == 0 && n.own == nil {
		ports = w.system.closed
	}
	return ports[d.Below(uint64(len(ports)))]
}

// stranger sends a node bytes on a connection that nobody knows.
func (w *world) stranger(n *node, channel effects.Channel, b []byte) {
	if channel.Order() == effects.OneWay {
		w.forNode(n, 0, delivery{kind: kindReceived, a: 1 << 50, b: uint64(channel), body: w.body(b)})
		return
	}
	w.requests = append(w.requests, request{node: n.id, life: n.life, channel: channel, noise: true, at: w.now})
	id := uint64(len(w.requests))
	w.forNode(n, 0, delivery{kind: kindReceived, a: 1<<50 | id, b: uint64(channel), c: id, body: w.body(b)})
}

// mutate changes a message in one of the ways that bytes go wrong: flipped bits, a
// changed byte, a cut, a repeated part, more bytes at the end.
func mutate(b []byte, d draw.Of) []byte {
	if len(b) == 0 {
		return b
	}
	for range d.Between(1, 3) {
		d = d.Again()
		at := int(d.Below(uint64(len(b))))
		switch v := d.Again(); v.Below(5) {
		case 0:
			b[at] ^= 1 << v.Again().Below(8)
		case 1:
			b[at] = byte(v.Again())
		case 2:
			if b = b[:at]; at == 0 {
				return append(b, 0xC1)
			}
		case 3:
			b = append(b[:at:at], append(append([]byte(nil), b[at/2:at]...), b[at:]...)...)
		case 4:
			b = append(b, byte(v.Again()))
		}
	}
	return b
}

// corrupt changes the nth message of c, or its answer, on its way, if that can be told from one that was
// meant: a change that still reads well is a lie of a peer, which is another matter.
func (w *world) corrupt(f plan.Fault, c *conn, nth uint64, body []byte) []byte {
	legible := w.legibleTo(c)
	if legible == nil {
		return body
	}
	d, yes := w.strikes(f, c.name, nth)
	if !yes {
		return body
	}
	if f == plan.FaultCorruptReply && w.nodes[c.client].own == nil && d.Again().Again().Permille(300) {
		if b, ok := w.system.words.senseless(body); ok {
			return b
		}
	}
	for range 4 {
		d = d.Again()
		if b := mutate(append([]byte(nil), body...), d); !legible(b) {
			return b
		}
	}
	return body[:len(body)/2]
}

package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A partition blocks messages between a node and all remaining nodes for a time. A flapping partition blocks messages
// only during every second interval of this time.
type wall struct {
	node        int32
	in, out     bool // the blocked directions
	from, until int64
	flap        int64 // length of the intervals; 0: the partition is not interrupted
}

// blockedUntil returns the instant at which a message between two nodes can pass, or 0 if the message can pass now.
func (w *World) heldUntil(from, to int32) (until int64) {
	for _, x := range w.walls {
		if concerns := x.out && x.node == from || x.in && x.node == to; !concerns || w.Now >= x.until {
			continue
		}
		end := x.until
		if x.flap > 0 {
			nth := (w.Now - x.from) / x.flap
			if nth%2 == 1 {
				continue
			}
			end = min(end, x.from+(nth+1)*x.flap)
		}
		until = max(until, end)
	}
	return until
}

// blockedTime returns how long a partition holds back a message that is sent between two nodes now.
func (w *World) held(from, to int32) effects.Duration {
	if until := w.heldUntil(from, to); until > 0 {
		return effects.Duration(until - w.Now)
	}
	return 0
}

// The directions of a message on a connection, which name the faults that strike the message.
const (
	ToServer = iota
	ToClient
)

// transit returns how long the nth message of c, or its reply, is in flight, and whether it arrives at all. A message
// that a partition holds back is sent again by the transport when the partition ends, unless the connection was given
// up in the meantime.
func (c *Conn) transit(w *World, l draw.Label, direction int, nth uint64) (effects.Duration, bool) {
	delay := c.nthDraw(w, l, nth).Heavy(w.Setting.Net)
	if d, yes := w.Strikes(plan.FaultDelay, c.Name, 2*nth+uint64(direction)); yes {
		delay += d.Span(0, effects.Second)
	}
	from, to := c.Client, c.Server
	if direction == ToClient {
		from, to = to, from
	}
	if until := w.heldUntil(from, to); until > 0 {
		if c.nthDraw(w, l, nth).Again().Again().Permille(500) {
			c.Dead = true
			return 0, false
		}
		delay += effects.Duration(until - w.Now)
	}
	return delay, true
}

// mischief starts a scheduled fault.
func (w *World) mischief(x Delivery) {
	f := &w.Source.Faults[x.C]
	n := w.Nodes[x.Node]
	if w.Healed || !n.Up {
		return
	}
	w.Journal.Note(w.Now, kindMischief, n.ID, uint64(f.Fault), uint64(f.For), 0)
	switch until := w.Now + int64(f.For); f.Fault {
	case plan.FaultTwice:
		n.twice, n.again = x.A == 0, x.C
		w.Crash(n)
	case plan.FaultSlow:
		n.slow = max(n.slow, until)
	case plan.FaultPartition:
		w.walls = append(w.walls, wall{node: n.ID, in: true, out: true, from: w.Now, until: until})
	case plan.FaultDeafPartition:
		w.walls = append(w.walls, wall{node: n.ID, out: true, from: w.Now, until: until})
	case plan.FaultFlapping:
		w.walls = append(w.walls, wall{node: n.ID, in: true, out: true, from: w.Now, until: until,
			flap: int64(f.For)/int64(3+f.Pick%6) + 1})
	case plan.FaultReset:
		n.reset(w)
	default:
		w.System.Mischief(n, f)
		return
	}
	if f.Fault != plan.FaultTwice || n.twice { // The second crash belongs to the same fault.
		w.Result.Fault(f.Fault)
	}
}

// reset breaks every connection and link of a node, including the messages in flight.
func (n *Node) reset(w *World) {
	for _, c := range w.Conns {
		if c.Client == n.ID && c.Life == n.Life || c.Server == n.ID {
			w.Cut(c, w.Struck(plan.FaultUnnoticed, c.Name, c.Sent))
		}
	}
	for _, l := range w.Links {
		if !l.Lost && !l.Dropped && (l.From == n.ID && l.FromLife == n.Life || l.Target == n.Pool) && w.Nodes[l.From].Up &&
			w.Nodes[l.From].Life == l.FromLife {
			w.EndLink(w.Nodes[l.From], l, w.Nodes[l.From].draw(w, draw.Notice), true)
		}
	}
}

// drag delays the next step of a node that is slow.
func (n *Node) drag(w *World) {
	if n.slow <= w.Now || w.Healed {
		return
	}
	span := int64(n.draw(w, draw.Pause).Span(effects.Millisecond/10, 20*effects.Millisecond))
	n.Thaw, n.Frozen = max(n.Thaw, w.Now+span), n.Frozen+span
	w.Queue.Push(n.Thaw, Delivery{Kind: KindThaw, Node: n.ID, Life: n.Life})
}

// overheardMax is the number of newest messages that strangers know.
const overheardMax = 64

// Overhear keeps a message for strangers, which change and repeat messages.
func (w *World) Overhear(body []byte) {
	if !w.hostile {
		return
	}
	if len(w.Overheard) < overheardMax {
		w.Overheard = append(w.Overheard, nil)
	}
	w.Overheard[w.heard%overheardMax] = w.Stock.Bytes.Keep(body)
	w.heard++
}

// AnyPort draws one of the channels on which a node listens. A rank that listens on no channel receives noise all the
// same, on a channel of [System.ClosedPorts].
func (w *World) AnyPort(n *Node, d draw.Of) effects.Channel {
	ports := n.Listens
	if len(ports) == 0 && !n.User {
		ports = w.System.ClosedPorts()
	}
	return ports[d.Below(uint64(len(ports)))]
}

// Stranger sends bytes to a node on a connection that belongs to no node.
func (w *World) Stranger(n *Node, channel effects.Channel, b []byte) {
	if channel.Order() == effects.OneWay {
		w.ForNode(n, 0, Delivery{Kind: KindReceived, A: 1 << 50, B: uint64(channel), Body: w.Body(b)})
		return
	}
	w.Requests = append(w.Requests, Request{Node: n.ID, Life: n.Life, Channel: channel, Noise: true, At: w.Now})
	id := uint64(len(w.Requests))
	w.ForNode(n, 0, Delivery{Kind: KindReceived, A: 1<<50 | id, B: uint64(channel), C: id, Body: w.Body(b)})
}

// DamageMessage damages a message in a random way: flipped bits, a changed byte, truncation, a repeated part, or
// additional bytes at the end.
func Mutate(b []byte, d draw.Of) []byte {
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

// Corrupt damages the nth message of c, or its reply, in flight, provided that the damage can be recognized. Damage
// that still reads as a well-formed message would be a lie of a peer, which is a different fault.
func (w *World) Corrupt(f plan.Fault, c *Conn, nth uint64, body []byte) []byte {
	legible := w.System.Legible(c)
	if legible == nil {
		return body
	}
	d, yes := w.Strikes(f, c.Name, nth)
	if !yes {
		return body
	}
	if f == plan.FaultCorruptReply && !w.Nodes[c.Client].User && d.Again().Again().Permille(300) {
		if b, ok := w.System.SenselessReply(body); ok {
			return b
		}
	}
	for range 4 {
		d = d.Again()
		if b := Mutate(append([]byte(nil), body...), d); !legible(b) {
			return b
		}
	}
	return body[:len(body)/2]
}

package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A partition blocks messages between a node and all remaining nodes for a time. A flapping partition blocks messages
// only during every second interval of this time.
type partition struct {
	node                int32
	blocksIn, blocksOut bool // the blocked directions
	from, until         int64
	interval            int64 // length of the intervals; 0: the partition is not interrupted
}

// blockedUntil returns the instant at which a message between two nodes can pass, or 0 if the message can pass now.
func (w *World) blockedUntil(from, to int32) (until int64) {
	for _, x := range w.partitions {
		if concerns := x.blocksOut && x.node == from || x.blocksIn && x.node == to; !concerns || w.Now >= x.until {
			continue
		}
		end := x.until
		if x.interval > 0 {
			nth := (w.Now - x.from) / x.interval
			if nth%2 == 1 {
				continue
			}
			end = min(end, x.from+(nth+1)*x.interval)
		}
		until = max(until, end)
	}
	return until
}

// blockedTime returns how long a partition holds back a message that is sent between two nodes now.
func (w *World) blockedTime(from, to int32) effects.Duration {
	if until := w.blockedUntil(from, to); until > 0 {
		return effects.Duration(until - w.Now)
	}
	return 0
}

// The directions of a message on a connection, which name the faults that strike the message.
const (
	ToServer = iota
	ToClient
)

// drawTransit returns how long the nth message of c, or its reply, is in flight, and whether it arrives at all. A
// message that a partition holds back is sent again by the transport when the partition ends, unless the connection was
// given up in the meantime.
func (c *Conn) drawTransit(w *World, l draw.Label, direction int, nth uint64) (effects.Duration, bool) {
	delay := c.drawNth(w, l, nth).HeavyTail(w.Conditions.MessageTime)
	if d, yes := w.DrawStrike(plan.FaultMessageDelayed, c.Name, 2*nth+uint64(direction)); yes {
		delay += d.Duration(0, effects.Second)
	}
	from, to := c.Client, c.Server
	if direction == ToClient {
		from, to = to, from
	}
	if until := w.blockedUntil(from, to); until > 0 {
		if c.drawNth(w, l, nth).Rehash().Rehash().ChancePermille(500) {
			c.Dead = true
			return 0, false
		}
		delay += effects.Duration(until - w.Now)
	}
	return delay, true
}

// startFault starts a scheduled fault.
func (w *World) startFault(x Delivery) {
	f := &w.SourcePlan.Faults[x.C]
	n := w.Nodes[x.Node]
	if w.Healed || !n.Up {
		return
	}
	w.Journal.AddLine(w.Now, kindScheduledFault, n.ID, uint64(f.Fault), uint64(f.For), 0)
	switch until := w.Now + int64(f.For); f.Fault {
	case plan.FaultDoubleCrash:
		n.crashesAgain, n.faultIndex = x.A == 0, x.C
		w.CrashNode(n)
	case plan.FaultSlowNode:
		n.slowUntil = max(n.slowUntil, until)
	case plan.FaultPartition:
		w.partitions = append(w.partitions, partition{node: n.ID, blocksIn: true, blocksOut: true, from: w.Now, until: until})
	case plan.FaultOneWayPartition:
		w.partitions = append(w.partitions, partition{node: n.ID, blocksOut: true, from: w.Now, until: until})
	case plan.FaultFlappingPartition:
		w.partitions = append(w.partitions, partition{node: n.ID, blocksIn: true, blocksOut: true, from: w.Now, until: until,
			interval: int64(f.For)/int64(3+f.Pick%6) + 1})
	case plan.FaultConnsReset:
		n.resetConns(w)
	default:
		w.System.StartFault(n, f)
		return
	}
	if f.Fault != plan.FaultDoubleCrash || n.crashesAgain { // The second crash belongs to the same fault.
		w.Result.CountFault(f.Fault)
	}
}

// resetConns breaks every connection and link of a node, including the messages in flight.
func (n *Node) resetConns(w *World) {
	for _, c := range w.Conns {
		if c.Client == n.ID && c.Incarnation == n.Incarnation || c.Server == n.ID {
			w.CutConn(c, w.IsStruck(plan.FaultLossUnnoticed, c.Name, c.SentCount))
		}
	}
	for _, l := range w.Links {
		if !l.Lost && !l.Dropped && (l.From == n.ID && l.FromIncarnation == n.Incarnation || l.Target == n.Pool) && w.Nodes[l.From].Up &&
			w.Nodes[l.From].Incarnation == l.FromIncarnation {
			w.EndLink(w.Nodes[l.From], l, w.Nodes[l.From].nextDraw(w, draw.Notice), true)
		}
	}
}

// delayNextStep delays the next step of a node that is slow.
func (n *Node) delayNextStep(w *World) {
	if n.slowUntil <= w.Now || w.Healed {
		return
	}
	span := int64(n.nextDraw(w, draw.Pause).Duration(effects.Millisecond/10, 20*effects.Millisecond))
	n.ResumeAt, n.FrozenTime = max(n.ResumeAt, w.Now+span), n.FrozenTime+span
	w.Queue.Push(n.ResumeAt, Delivery{Kind: KindResume, Node: n.ID, Incarnation: n.Incarnation})
}

// overheardMax is the number of newest messages that strangers know.
const overheardMax = 64

// OverhearMessage keeps a message for strangers, which change and repeat messages.
func (w *World) OverhearMessage(body []byte) {
	if !w.hasHostile {
		return
	}
	if len(w.Overheard) < overheardMax {
		w.Overheard = append(w.Overheard, nil)
	}
	w.Overheard[w.overheardCount%overheardMax] = w.Arenas.Bytes.CopySlice(body)
	w.overheardCount++
}

// PickChannel draws one of the channels on which a node listens. A rank that listens on no channel receives noise all
// the same, on a channel of [System.ClosedPorts].
func (w *World) PickChannel(n *Node, d draw.Value) effects.Channel {
	channels := n.Listens
	if len(channels) == 0 && !n.Custom {
		channels = w.System.ClosedPorts()
	}
	return channels[d.Below(uint64(len(channels)))]
}

// SendFromStranger sends bytes to a node on a connection that belongs to no node. The stranger proves what the number
// names.
func (w *World) SendFromStranger(n *Node, proof StrangerProof, channel effects.Channel, b []byte) {
	if channel.Order() == effects.OneWay {
		w.QueueForNode(n, 0, Delivery{Kind: KindReceived, A: StrangerConn(proof, 0), B: uint64(channel), Body: w.CopyBody(b)})
		return
	}
	w.Requests = append(w.Requests, Request{Node: n.ID, Incarnation: n.Incarnation, Channel: channel, IsNoise: true, At: w.Now})
	id := uint64(len(w.Requests))
	w.QueueForNode(n, 0, Delivery{Kind: KindReceived, A: StrangerConn(proof, id), B: uint64(channel), C: id, Body: w.CopyBody(b)})
}

// DamageMessage damages a message in a random way: flipped bits, a changed byte, truncation, a repeated part, or
// additional bytes at the end.
func DamageMessage(b []byte, d draw.Value) []byte {
	if len(b) == 0 {
		return b
	}
	for range d.Between(1, 3) {
		d = d.Rehash()
		at := int(d.Below(uint64(len(b))))
		switch v := d.Rehash(); v.Below(5) {
		case 0:
			b[at] ^= 1 << v.Rehash().Below(8)
		case 1:
			b[at] = byte(v.Rehash())
		case 2:
			if b = b[:at]; at == 0 {
				return append(b, 0xC1)
			}
		case 3:
			b = append(b[:at:at], append(append([]byte(nil), b[at/2:at]...), b[at:]...)...)
		case 4:
			b = append(b, byte(v.Rehash()))
		}
	}
	return b
}

// CorruptMessage damages the nth message of c, or its reply, in flight, provided that the damage can be recognized.
// Damage that still reads as a well-formed message would be a lie of a peer, which is a different fault.
func (w *World) CorruptMessage(f plan.Fault, c *Conn, nth uint64, body []byte) []byte {
	isWellFormed := w.System.MessageValidator(c)
	if isWellFormed == nil {
		return body
	}
	d, yes := w.DrawStrike(f, c.Name, nth)
	if !yes {
		return body
	}
	if f == plan.FaultReplyCorrupted && !w.Nodes[c.Client].Custom && d.Rehash().Rehash().ChancePermille(300) {
		if b, ok := w.System.ImplausibleReply(body, d.Rehash().Rehash().Rehash()); ok {
			return b
		}
	}
	for range 4 {
		d = d.Rehash()
		if b := DamageMessage(append([]byte(nil), body...), d); !isWellFormed(b) {
			return b
		}
	}
	return body[:len(body)/2]
}

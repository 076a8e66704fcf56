package world

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// The channel of a link delivers messages in order until the channel is cut or closed, or an end dies.

// sayTarget sends a message to the target, after all earlier messages.
func (l *Link) sayTarget(w *World, word communicator.MessageKind, epoch uint64) {
	c := l.Comm
	if word == communicator.MessageOffer {
		c.Epochs = append(c.Epochs, &CommEpoch{Number: epoch})
	}
	if c.closed || c.cut {
		return
	}
	peer := l.Target.Node
	c.said = max(c.said, w.Now+int64(l.commDraw(w).Heavy(w.Setting.Net)))
	x := Delivery{Kind: KindCommSay, Node: peer.ID, Life: l.Target.Life, A: l.ID, B: epoch, C: uint64(word)}
	w.Queue.Push(c.said, x)
}

// closeChannel closes the channel, which is the last action of an initiator.
func (l *Link) closeChannel(w *World) {
	c := l.Comm
	c.closed = true
	OnChannelClosed.Report(&w.Panel, oracle.Nobody, ChannelClosed{l})
	if c.cut && !c.mapped {
		return
	}
	l.endChannel(w, true)
}

// endChannel notifies the target how the connection ends. The argument proves states that the end proves that the
// initiator has stopped.
func (l *Link) endChannel(w *World, proves bool) {
	c := l.Comm
	c.said = max(c.said, w.Now+int64(l.commDraw(w).Heavy(w.Setting.Net)))
	x := Delivery{Kind: KindCommEnd, Node: l.Target.Node.ID, Life: l.Target.Life, A: l.ID}
	if proves {
		x.B = 1
	}
	w.Queue.Push(c.said, x)
}

// commCut breaks a link's connection. Over HCCS, which stays within a super pod, the target receives the initiator's
// close all the same.
func (l *Link) commCut(w *World) {
	c := l.Comm
	if c.cut || c.closed {
		return
	}
	c.cut = true
	w.ForNode(w.Nodes[l.From], l.commDraw(w).Heavy(w.Setting.Net), Delivery{Kind: kindCommLost, A: l.ID})
	if !c.mapped {
		l.endChannel(w, false)
	}
}

// endCommLinks ends the links of a process that has died: the links from the process (the hardware stops within
// commMargin) and the links to the process.
func (n *Node) commDied(w *World) {
	for _, l := range w.Links {
		c := l.Comm
		switch {
		case c == nil:
		case l.From == n.ID && l.FromLife == n.Life:
			w.After(l.commDraw(w).Span(0, commMargin), Delivery{Kind: kindCommDead, Node: plan.Nobody, A: l.ID})
			l.Lost, l.Dropped = true, true
			if !c.closed {
				c.closed = true
				l.endChannel(w, !c.cut || c.mapped)
			}
		case l.Target == n.Pool && w.Lives(l.From, l.FromLife) && !c.closed:
			w.ForNode(w.Nodes[l.From], l.commDraw(w).Heavy(w.Setting.Net), Delivery{Kind: kindCommLost, A: l.ID})
		}
	}
}

// commMargin is how long a target waits after the peer's report or death before the peer's accesses count as finished.
const commMargin = 100 * effects.Millisecond

// hears passes a message of the target to the initiator's machine.
func (l *Link) hears(w *World, d Delivery) {
	c := l.Comm
	e := c.Epoch(d.B)
	if communicator.MessageKind(d.C&0xff) == communicator.MessageFenced {
		e.Heard = true
		l.feed(w, communicator.Event{Kind: communicator.TargetFenced, Epoch: d.B})
		return
	}
	ev := communicator.Event{Kind: communicator.Accepted, Epoch: d.B, Code: effects.Code(d.C >> 8)}
	ev.MoreRevoked = len(d.Body) > 0 && d.Body[0] == 1
	for at := 1; at+8 <= len(d.Body); at += 8 {
		ev.Revoked = append(ev.Revoked, effects.GrantID(binary.LittleEndian.Uint64(d.Body[at:])))
	}
	e.Revoked = ev.Revoked
	if ev.MoreRevoked {
		e.Since = w.Clock(w.Nodes[l.From])
	}
	w.Recycle(d.Body)
	l.feed(w, ev)
}

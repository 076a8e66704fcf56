package world

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// The channel of a link delivers messages in order until the channel is cut or closed, or an end dies.

// sendToTarget sends a message to the target, after all earlier messages.
func (l *Link) sendToTarget(w *World, word communicator.MessageKind, epoch uint64) {
	c := l.Comm
	if word == communicator.MessageOffer {
		c.Epochs = append(c.Epochs, &CommEpoch{Number: epoch})
	}
	if c.closed || c.cut {
		return
	}
	peer := l.Target.Node
	c.lastToTarget = max(c.lastToTarget, w.Now+int64(l.drawComm(w).HeavyTail(w.Conditions.MessageTime)))
	x := Delivery{Kind: KindCommToTarget, Node: peer.ID, Incarnation: l.Target.Incarnation, A: l.ID, B: epoch, C: uint64(word)}
	w.Queue.Push(c.lastToTarget, x)
}

// closeChannel closes the channel, which is the last action of an initiator.
func (l *Link) closeChannel(w *World) {
	c := l.Comm
	c.closed = true
	OnChannelClosed.Report(&w.Panel, oracle.NoNode, ChannelClosed{l})
	if c.cut && !c.mapped {
		return
	}
	l.endChannel(w, true)
}

// endChannel notifies the target how the connection ends. The argument proves states that the end proves that the
// initiator has stopped.
func (l *Link) endChannel(w *World, proves bool) {
	c := l.Comm
	c.lastToTarget = max(c.lastToTarget, w.Now+int64(l.drawComm(w).HeavyTail(w.Conditions.MessageTime)))
	x := Delivery{Kind: KindCommChannelEnded, Node: l.Target.Node.ID, Incarnation: l.Target.Incarnation, A: l.ID}
	if proves {
		x.B = 1
	}
	w.Queue.Push(c.lastToTarget, x)
}

// cutComm breaks a link's connection. Over HCCS, which stays within a super pod, the target receives the initiator's
// close all the same.
func (l *Link) cutComm(w *World) {
	c := l.Comm
	if c.cut || c.closed {
		return
	}
	c.cut = true
	w.QueueForNode(w.Nodes[l.From], l.drawComm(w).HeavyTail(w.Conditions.MessageTime), Delivery{Kind: kindCommChannelLost, A: l.ID})
	if !c.mapped {
		l.endChannel(w, false)
	}
}

// endCommLinks ends the links of a process that has died: the links from the process (the hardware stops within
// commMargin) and the links to the process.
func (n *Node) endCommLinks(w *World) {
	for _, l := range w.Links {
		c := l.Comm
		switch {
		case c == nil:
		case l.From == n.ID && l.FromIncarnation == n.Incarnation:
			w.QueueAfter(l.drawComm(w).Duration(0, commMargin), Delivery{Kind: kindCommHardwareStopped, Node: plan.NoNode, A: l.ID})
			l.Lost, l.Dropped = true, true
			if !c.closed {
				c.closed = true
				l.endChannel(w, !c.cut || c.mapped)
			}
		case l.Target == n.Pool && w.IsRunning(l.From, l.FromIncarnation) && !c.closed:
			w.QueueForNode(w.Nodes[l.From], l.drawComm(w).HeavyTail(w.Conditions.MessageTime), Delivery{Kind: kindCommChannelLost, A: l.ID})
		}
	}
}

// commMargin is how long a target waits after the peer's report or death before the peer's accesses count as finished.
const commMargin = 100 * effects.Millisecond

// handleTargetMessage passes a message of the target to the initiator's machine.
func (l *Link) handleTargetMessage(w *World, d Delivery) {
	c := l.Comm
	e := c.EpochAt(d.B)
	if communicator.MessageKind(d.C&0xff) == communicator.MessageFenced {
		e.PeerFenced = true
		l.feedEvent(w, communicator.Event{Kind: communicator.TargetFenced, Epoch: d.B})
		return
	}
	ev := communicator.Event{Kind: communicator.Accepted, Epoch: d.B, Code: effects.Code(d.C >> 8)}
	ev.MoreRevoked = len(d.Body) > 0 && d.Body[0] == 1
	for at := 1; at+8 <= len(d.Body); at += 8 {
		ev.Revoked = append(ev.Revoked, effects.GrantID(binary.LittleEndian.Uint64(d.Body[at:])))
	}
	e.Revoked = ev.Revoked
	if ev.MoreRevoked {
		e.ListedBefore = w.ReadClock(w.Nodes[l.From])
	}
	w.RecycleBody(d.Body)
	l.feedEvent(w, ev)
}

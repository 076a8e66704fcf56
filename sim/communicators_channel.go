package sim

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/plan"
)

// The channel of a link: words in order, until it is cut, closed, or one of its ends dies.

// sayTarget sends a word to the target, behind all others.
func (w *world) sayTarget(l *link, word communicator.Word, epoch uint64) {
	c := l.comm
	if word == communicator.Offer {
		c.epochs = append(c.epochs, &commEpoch{number: epoch})
	}
	if c.closed || c.cut {
		return
	}
	peer := l.target.node
	c.said = max(c.said, w.now+int64(w.commDraw(l).Heavy(w.plan.Net)))
	x := delivery{kind: kindCommSay, node: peer.id, life: l.target.life, a: l.id, b: epoch, c: uint64(word)}
	w.queue.push(c.said, x)
}

// closeChannel closes it, the last thing that an initiator does.
func (w *world) closeChannel(l *link) {
	c := l.comm
	c.closed = true
	w.oracles.onChannelClosed(l)
	if c.cut && !c.mapped {
		return
	}
	w.endChannel(l, true)
}

// endChannel tells the target how the connection ends.
func (w *world) endChannel(l *link, proves bool) {
	c := l.comm
	c.said = max(c.said, w.now+int64(w.commDraw(l).Heavy(w.plan.Net)))
	x := delivery{kind: kindCommEnd, node: l.target.node.id, life: l.target.life, a: l.id}
	if proves {
		x.b = 1
	}
	w.queue.push(c.said, x)
}

// commCut breaks a link's connection. Over HCCS, which stays within a super pod, its end is heard all the same.
func (w *world) commCut(l *link) {
	c := l.comm
	if c.cut || c.closed {
		return
	}
	c.cut = true
	w.forNode(w.nodes[l.from], w.commDraw(l).Heavy(w.plan.Net), delivery{kind: kindCommLost, a: l.id})
	if !c.mapped {
		w.endChannel(l, false)
	}
}

// commDied ends the links of a process that has died: its own, whose hardware is at an end in a while, and those to it.
func (w *world) commDied(n *node) {
	for _, l := range w.links {
		c := l.comm
		switch {
		case c == nil:
		case l.from == n.id && l.fromLife == n.life:
			w.after(w.commDraw(l).Span(0, commMargin), delivery{kind: kindCommDead, node: plan.Nobody, a: l.id})
			l.lost, l.dropped = true, true
			if !c.closed {
				c.closed = true
				w.endChannel(l, !c.cut || c.mapped)
			}
		case l.target == n.pool && w.lives(l.from, l.fromLife) && !c.closed:
			w.forNode(w.nodes[l.from], w.commDraw(l).Heavy(w.plan.Net), delivery{kind: kindCommLost, a: l.id})
		}
	}
}

// commMargin is what a target waits after a word of its peer's, or its death.
const commMargin = 100 * effects.Millisecond

// hears takes a word of the target's.
func (w *world) hears(l *link, d delivery) {
	c := l.comm
	e := c.epoch(d.b)
	if communicator.Word(d.c&0xff) == communicator.Fenced {
		e.heard = true
		w.feed(l, communicator.Event{Kind: communicator.PeerFenced, Epoch: d.b})
		return
	}
	ev := communicator.Event{Kind: communicator.Accepted, Epoch: d.b, Code: effects.Code(d.c >> 8)}
	ev.More = len(d.body) > 0 && d.body[0] == 1
	for at := 1; at+8 <= len(d.body); at += 8 {
		ev.Revoked = append(ev.Revoked, effects.GrantID(binary.LittleEndian.Uint64(d.body[at:])))
	}
	e.revoked = ev.Revoked
	if ev.More {
		e.since = w.clock(w.nodes[l.from])
	}
	w.recycle(d.body)
	w.feed(l, ev)
}

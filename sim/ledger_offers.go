package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// What is said of loans. On leased planes a reader's word ends one, so it must be true, and nobody
// else's may be taken for it.

// offering notes what a loan is called, as the offer leaves.
func (l *ledger) offering(n *node, c *conn, body []byte) {
	c.offer = 0
	m := &l.offer
	if !n.pulls || c.channel != effects.ChannelAlloc || m.Decode(body, &wireLimits) != nil || !m.HasExt {
		return
	}
	if g := n.pool.loan(effects.GrantID(m.Ext.Grant)); g != nil {
		g.loan.pull, c.offer = m.PullID, g.id
	}
}

// acked takes an answer to an offer, as it reaches the sender's machine: if its reader says that it
// will read nothing, the loan is over.
func (l *ledger) acked(n *node, c *conn, body []byte) {
	g := n.pool.loan(c.offer)
	m := &l.ack
	if c.offer == 0 || g == nil || m.Decode(body, &wireLimits) != nil {
		return
	}
	its := m.HasExt && protocol.UUID(g.peer) == m.Ext.Incarnation || !m.HasExt && g.bearer()
	if its && (m.AllocFailed || m.Ext.Code != 0 || len(m.AlreadySent) == len(g.pages)) {
		g.loan.heard = true
	}
}

// saying checks what a reader says of a grant as it leaves: none of its reads is under way.
func (l *ledger) saying(n *node, m *protocol.PullDoneSignal) {
	if !m.HasExt {
		return
	}
	for _, t := range l.w.transfers {
		if !t.read || t.local != n.pool || uint64(t.grant) != m.Ext.Grant || protocol.UUID(t.link.peer) != m.Ext.To {
			continue
		}
		if t.reading {
			l.w.fail("S19", "node %d says that grant %d has ended while transfer %d may still read", n.id, t.grant, t.id)
			return
		}
		if t.under != nil {
			t.under.loan.said = true
		}
	}
}

// doneHeard notes that an owner is told of an end, if it is its reader who says so.
func (l *ledger) doneHeard(n *node, body []byte) {
	m := &l.done
	if m.Decode(body, &wireLimits) != nil {
		return
	}
	for _, g := range n.pool.lent {
		if g.loan.pull != m.PullID {
			continue
		}
		if g.bearer() || m.HasExt && m.Ext.Grant == uint64(g.id) && protocol.UUID(g.peer) == m.Ext.Incarnation && protocol.UUID(n.incarnation) == m.Ext.To {
			g.loan.heard = true
		}
	}
}

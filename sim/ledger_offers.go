package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is said of loans. On leased planes a reader's word ends one, so it must be true, and nobody
// else's may be taken for it.

// What is judged here.
var (
	checkRefusing   = newCheck("S19", "answers that end loans")
	checkEndNamed   = newCheck("L2", "ends told by name")
	checkEndSettled = newCheck("S19", "ends told of what is settled")
	checkTakenBack  = newCheck("L2", "loans over by their reader's word")
)

// offering notes what a loan is called, as the offer leaves.
func (l *ledger) offering(n *node, c *conn, body []byte) {
	c.offer = 0
	m := &l.offer
	if !n.pulls || c.channel != effects.ChannelAlloc || m.Decode(body, &wireLimits) != nil || !m.HasExt {
		return
	}
	if g := n.pool.loan(effects.GrantID(m.Ext.Grant)); g != nil {
		g.loan.pull, c.offer, c.lane, g.loan.late = m.PullID, g.id, true, false
	}
}

// acked takes an answer to an offer, as it reaches the sender's machine: if its reader says that it
// will read nothing, the loan is over.
func (l *ledger) acked(n *node, offer effects.GrantID, body []byte) {
	g := n.pool.loan(offer)
	m := &l.ack
	if offer == 0 || g == nil || m.Decode(body, &wireLimits) != nil {
		return
	}
	its := m.HasExt && protocol.UUID(g.peer) == m.Ext.Incarnation || !m.HasExt && g.bearer()
	// One that is stale speaks of another life, though it be the same: then time ends the loan.
	code := effects.CodeFromWire(m.Ext.Code)
	stale := code == effects.Stale
	if m.Ext.Delayed {
		return // It fails, or is kept: the end is still to be told.
	}
	if its && code == effects.Expired { // It came too late, and may be offered again, with clocks compared anew.
		g.loan.late = true
		return
	}
	pages := len(g.pages)
	// Nonsense says nothing.
	all := len(m.AlreadySent) == pages && (pages == 0 || m.AlreadySent[pages-1] == int64(pages-1))
	if its && !stale && (m.AllocFailed || m.Ext.Code != 0 || all) {
		l.ended(n, g)
	}
}

// refusing checks an answer that ends a loan, as it leaves its reader: none of its reads is under way.
func (l *ledger) refusing(n *node, r *request, body []byte) {
	m := &l.ack
	if r.conn == nil || r.offer == 0 || m.Decode(body, &wireLimits) != nil || !m.HasExt ||
		!m.AllocFailed && m.Ext.Code == 0 {
		return
	}
	if m.Ext.Delayed {
		l.refusedMeets(r)
		return
	}
	if effects.CodeFromWire(m.Ext.Code) == effects.Stale {
		return
	}
	l.judged(checkRefusing)
	owner := l.incarnation(r.conn.client, r.conn.life)
	for _, t := range l.w.going.transfers.some {
		if t.read && t.reading && t.local == n.pool && t.grant == r.offer &&
			identity.OneLife(t.link.peer, owner) && !l.harmless(t) {
			l.fail(checkRefusing, "node %d says that nothing of grant %d will be read while transfer %d may still read",
				n.it(), n.itsGrant(t.grant), oracle.Transfer(t.id))
			return
		}
	}
}

// saying checks what a reader says of a grant as it leaves: none of its reads is under way.
func (l *ledger) saying(n *node, m *protocol.PullDoneSignal) {
	if !m.HasExt {
		return
	}
	l.judged(checkEndNamed, checkEndSettled)
	if l.w.script == nil && !n.believes(effects.Incarnation(m.Ext.To), effects.Incarnation(m.Ext.Incarnation)) {
		l.fail(checkEndNamed, "node %d says that grant %d has ended in a name that its owner does not know",
			n.it(), n.itsGrant(effects.GrantID(m.Ext.Grant)))
		return
	}
	for _, t := range l.w.transfers {
		if !t.read || t.local != n.pool || uint64(t.grant) != m.Ext.Grant || protocol.UUID(t.link.peer) != m.Ext.To {
			continue
		}
		if t.reading && !l.harmless(t) {
			l.fail(checkEndSettled, "node %d says that grant %d has ended while transfer %d may still read",
				n.it(), n.itsGrant(t.grant), oracle.Transfer(t.id))
			return
		}
		if t.under != nil {
			t.under.loan.said = true
		}
	}
}

// harmless says whether a read on a fenced plane is not the first of its offer, by a receiver that reads offers as they
// come. It may have forgotten that it said its last word, and the plane itself refuses what was taken back.
func (l *ledger) harmless(t *transfer) bool {
	return !l.w.plan.Leased && !t.local.node.delays && t.under != nil && slices.ContainsFunc(l.w.transfers[:t.id-1], func(u *transfer) bool {
		return u.under == t.under && u.local == t.local
	})
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
		if g.bearer() || m.HasExt && m.Ext.Grant == uint64(g.id) && protocol.UUID(g.peer) == m.Ext.Incarnation && l.w.named(n, effects.Incarnation(m.Ext.To)) {
			l.ended(n, g)
		}
	}
}

// ended notes that an owner's machine is told, by the reader itself, that a loan is over.
func (l *ledger) ended(n *node, g *grant) {
	if !g.loan.heard {
		g.loan.heard = true
		n.seen.over = append(n.seen.over, g)
	}
}

// takenBack checks that what a reader said to be over is taken back in the very step: at once where
// its word is the proof, and else with the question for it (L2).
func (l *ledger) takenBack(n *node) {
	for _, g := range n.seen.over {
		l.judged(checkTakenBack)
		c := &command{}
		if g.loan.put != 0 {
			c = &l.w.commands[g.loan.put-1]
		}
		if !g.revoking && (!l.w.plan.Leased || c.over && c.held && c.lent == g.id) {
			l.fail(checkTakenBack, "node %d leaves pages lent under grant %d although their reader said that it has ended",
				n.it(), n.itsGrant(g.id))
		}
	}
	n.seen.over = n.seen.over[:0]
}

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
	checkRefusing   = oracle.NewCheck("S19", "answers that end loans")
	checkEndNamed   = oracle.NewCheck("L2", "ends told by name")
	checkEndSettled = oracle.NewCheck("S19", "ends told of what is settled")
	checkTakenBack  = oracle.NewCheck("L2", "loans over by their reader's word")
)

// offersOracle judges what is said of loans.
type offersOracle struct {
	judge
	perLife[offersLife]
}

type offersLife struct {
	over []*grant // to read, of which the machine is told in this step that they are
}

func (s *offersLife) empty() { *s = offersLife{over: s.over[:0]} }

// offering notes what a loan is called, as the offer leaves.
func (or *offersOracle) offering(n *node, c *conn, body []byte) {
	c.offer = 0
	m := &or.truth().offer
	if !n.pulls || c.channel != effects.ChannelAlloc || m.Decode(body, &wireLimits) != nil || !m.HasExt {
		return
	}
	if g := n.pool.loan(effects.GrantID(m.Ext.Grant)); g != nil {
		g.loan.pull, c.offer, c.lane, g.loan.late = m.PullID, g.id, true, false
	}
}

// acked takes an answer to an offer, as it reaches the sender's machine: if its reader says that it
// will read nothing, the loan is over.
func (or *offersOracle) acked(n *node, offer effects.GrantID, body []byte) {
	g := n.pool.loan(offer)
	m := &or.truth().ack
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
		or.ended(n, g)
	}
}

// refusing checks an answer that ends a loan, as it leaves its reader: none of its reads is under way.
func (or *offersOracle) refusing(n *node, r *request, body []byte) {
	m := &or.truth().ack
	if r.conn == nil || r.offer == 0 || m.Decode(body, &wireLimits) != nil || !m.HasExt ||
		!m.AllocFailed && m.Ext.Code == 0 {
		return
	}
	if m.Ext.Delayed {
		or.refusedMeets(r)
		return
	}
	if effects.CodeFromWire(m.Ext.Code) == effects.Stale {
		return
	}
	or.judged(checkRefusing)
	owner := or.truth().incarnation(r.conn.client, r.conn.life)
	for _, t := range or.w.going.transfers.some {
		if t.read && t.reading && t.local == n.pool && t.grant == r.offer &&
			identity.OneLife(t.link.peer, owner) && !or.harmless(t) {
			or.fail(checkRefusing, "node %d says that nothing of grant %d will be read while transfer %d may still read",
				n.it(), n.itsGrant(t.grant), oracle.Transfer(t.id))
			return
		}
	}
}

// saying checks what a reader says of a grant as it leaves: none of its reads is under way.
func (or *offersOracle) saying(n *node, m *protocol.PullDoneSignal) {
	if !m.HasExt {
		return
	}
	or.judged(checkEndNamed, checkEndSettled)
	if or.w.script == nil && !n.believes(effects.Incarnation(m.Ext.To), effects.Incarnation(m.Ext.Incarnation)) {
		or.fail(checkEndNamed, "node %d says that grant %d has ended in a name that its owner does not know",
			n.it(), n.itsGrant(effects.GrantID(m.Ext.Grant)))
		return
	}
	for _, t := range or.w.transfers {
		if !t.read || t.local != n.pool || uint64(t.grant) != m.Ext.Grant || protocol.UUID(t.link.peer) != m.Ext.To {
			continue
		}
		if t.reading && !or.harmless(t) {
			or.fail(checkEndSettled, "node %d says that grant %d has ended while transfer %d may still read",
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
func (or *offersOracle) harmless(t *transfer) bool {
	if or.w.plan.Leased || t.local.node.delays || t.under == nil {
		return false
	}
	return slices.ContainsFunc(or.w.transfers[:t.id-1], func(u *transfer) bool {
		return u.under == t.under && u.local == t.local
	})
}

// doneHeard notes that an owner is told of an end, if it is its reader who says so.
func (or *offersOracle) doneHeard(n *node, body []byte) {
	m := &or.truth().done
	if m.Decode(body, &wireLimits) != nil {
		return
	}
	for _, g := range n.pool.lent {
		if g.loan.pull != m.PullID {
			continue
		}
		its := m.HasExt && m.Ext.Grant == uint64(g.id) && protocol.UUID(g.peer) == m.Ext.Incarnation
		if g.bearer() || its && or.w.named(n, effects.Incarnation(m.Ext.To)) {
			or.ended(n, g)
		}
	}
}

// ended notes that an owner's machine is told, by the reader itself, that a loan is over.
func (or *offersOracle) ended(n *node, g *grant) {
	if !g.loan.heard {
		g.loan.heard = true
		or.at(n).over = append(or.at(n).over, g)
	}
}

// takenBack checks that what a reader said to be over is taken back in the very step: at once where
// its word is the proof, and else with the question for it (L2).
func (or *offersOracle) takenBack(n *node) {
	my := or.at(n)
	for _, g := range my.over {
		or.judged(checkTakenBack)
		c := &command{}
		if g.loan.put != 0 {
			c = &or.w.commands[g.loan.put-1]
		}
		if !g.revoking && (!or.w.plan.Leased || c.over && c.held && c.lent == g.id) {
			or.fail(checkTakenBack, "node %d leaves pages lent under grant %d although their reader said that it has ended",
				n.it(), n.itsGrant(g.id))
		}
	}
	my.over = my.over[:0]
}

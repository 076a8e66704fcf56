package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkReserved           = newCheck("S5", "reserved pages")
	checkReservedUnread     = newCheck("S4", "reserved pages that are read")
	checkReservedGeneration = newCheck("S2", "generations of reserved pages")
	checkReservedInTurn     = newCheck("L7", "reserves in turn")
	checkTransferLink       = newCheck("L5", "links of transfers")
	checkTransferLife       = newCheck("S12", "lives that transfers go to")
	checkTransferBounds     = newCheck("S11", "bounds of transfers")
	checkTransferLayout     = newCheck("S22", "layouts of transfers")
	checkTransferLent       = newCheck("S19", "pages of pushes")
	checkTransferLength     = newCheck("S21", "lengths of pushes")
	checkGivenBack          = newCheck("S19", "pages given back")
)

func (l *ledger) reserved(n *node, e *effects.Deliver, c *command) {
	l.judged(checkReserved, checkReservedUnread, checkReservedGeneration)
	if len(e.Pages) != int(c.count) {
		l.fail(checkReserved, "node %d reserves %d pages instead of %d", n.it(), len(e.Pages), c.count)
		return
	}
	if id, page := l.lentTo(n, e.Pages); id != 0 {
		l.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while grant %d lets it be read",
			n.it(), n.itsPage(page), oracle.Ticket(e.Ticket), n.itsGrant(id))
		return
	}
	for _, p := range e.Pages {
		pg := &n.engine().pages[p.Index]
		switch {
		case pg.reserved != 0:
			l.fail(checkReserved, "node %d reserves page %d for ticket %d while ticket %d has it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket), oracle.Ticket(pg.reserved))
		case pg.readers > 0:
			l.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while a transfer may still read it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket))
		case p.Generation <= pg.last:
			l.fail(checkReservedGeneration, "node %d reserves page %d with generation %d after %d",
				n.it(), n.itsPage(n.numbered(p)), p.Generation, pg.last)
		}
		pg.reserved, pg.last = e.Ticket, p.Generation
		n.engine().touch(p.Index)
	}
	// First in, first out: whoever asked earlier for no more must not still wait.
	n.seen.reserves = slices.DeleteFunc(n.seen.reserves, func(t effects.Ticket) bool { return l.w.commands[t-1].over })
	if len(n.seen.reserves) > 0 {
		l.judged(checkReservedInTurn)
	}
	for _, t := range slices.Backward(n.seen.reserves) {
		if t < e.Ticket && l.w.commands[t-1].count <= c.count {
			l.fail(checkReservedInTurn, "node %d reserves for ticket %d while ticket %d waits longer for no more pages",
				n.it(), oracle.Ticket(e.Ticket), oracle.Ticket(t))
			return
		}
	}
}

// releasing clears what the engine had by a ticket, from before the machine knows.
func (l *ledger) releasing(n *node, t effects.Ticket) {
	c := &l.w.commands[t-1]
	for _, p := range c.pages {
		pg := &n.engine().pages[p.Index]
		switch {
		case c.want != wantReserve:
			pg.pins--
		case pg.reserved == t: // Else it was given back before, and is another's by now.
			pg.reserved = 0
		}
		n.engine().touch(p.Index)
	}
}

// transferring checks a Transfer as it leaves the machine.
func (l *ledger) transferring(n *node, t *transfer, e *effects.Transfer) {
	t.reading = true
	l.judged(checkTransferLink)
	if t.link.told {
		l.fail(checkTransferLink, "node %d transfers on link %d, of whose loss it was told", n.it(), oracle.Link(t.link.id))
		return
	}
	l.leasing(n, t)
	if t.read {
		l.read(n, t)
	}
	for _, p := range e.Pairs {
		if l.w.script != nil && t.read && (l.buffers[p.Remote.Buffer] != t.remote || t.link.peer != e.Peer) {
			l.fetching(n, t, p)
			continue // Scenarios ask for what machines do not.
		}
		l.judged(checkTransferLife, checkTransferBounds, checkTransferLayout)
		if target := l.buffers[p.Remote.Buffer]; target == nil || target != t.remote || !identity.OneLife(l.incarnation(target.node.id, target.life), e.Peer) {
			l.fail(checkTransferLife, "node %d transfers to a buffer of another life than its link's", n.it())
			return
		}
		if int(p.Remote.Index) >= len(t.remote.pages) || int(p.Local.Index) >= len(n.pool.pages) {
			l.fail(checkTransferBounds, "node %d transfers to page %d of %d",
				n.it(), n.itsPage(p.Remote.Index), len(t.remote.pages))
			return
		}
		if t.remote.node.cfg.Layout != n.cfg.Layout {
			l.fail(checkTransferLayout, "node %d transfers to node %d, whose layout differs", n.it(), t.remote.node.it())
			return
		}
		if t.read {
			if l.fetching(n, t, p); l.w.failure != nil {
				return
			}
			continue
		}
		src := &n.pool.pages[p.Local.Index]
		l.judged(checkTransferLent, checkTransferLength)
		if src.reserved == 0 || src.last != p.Local.Generation {
			l.fail(checkTransferLent, "node %d transfers page %d, which its engine has not lent",
				n.it(), n.itsPage(p.Local.Index))
			return
		}
		if lent := l.w.commands[src.reserved-1].pages; !hasLength(lent, p.Local) {
			l.fail(checkTransferLength, "node %d transfers %d bytes of page %d, more or fewer than its chunk has",
				n.it(), p.Local.Length, n.itsPage(p.Local.Index))
			return
		}
		src.readers++
		n.pool.touch(p.Local.Index)
	}
}

func hasLength(pages []effects.Page, p effects.Page) bool {
	for _, q := range pages {
		if q.Index == p.Index {
			return q.Length == p.Length
		}
	}
	return false
}

// settled ends what a transfer may read, as its initiator is told so.
func (l *ledger) settled(t *transfer) {
	if !t.reading {
		return
	}
	t.reading = false
	if t.read {
		l.fetched(t)
		return
	}
	for _, p := range t.pairs {
		t.local.pages[p.Local.Index].readers--
		t.local.touch(p.Local.Index)
	}
}

// lentBack checks that memory which the engine gets back is not read any more, nor may be.
func (l *ledger) lentBack(n *node, c *command) {
	l.judged(checkGivenBack)
	if id, page := l.lentTo(n, c.pages); id != 0 {
		l.fail(checkGivenBack, "node %d gives page %d back to its engine while grant %d lets it be read",
			n.it(), n.itsPage(page), n.itsGrant(id))
		return
	}
	for _, p := range c.pages {
		if n.engine().pages[p.Index].readers > 0 {
			l.fail(checkGivenBack, "node %d gives page %d back to its engine while a transfer may still read it",
				n.it(), n.itsPage(n.numbered(p)))
			return
		}
	}
}

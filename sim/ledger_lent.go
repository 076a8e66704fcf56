package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// What is judged here.
var (
	checkReserved           = oracle.NewCheck("S5", "reserved pages")
	checkReservedUnread     = oracle.NewCheck("S4", "reserved pages that are read")
	checkReservedGeneration = oracle.NewCheck("S2", "generations of reserved pages")
	checkReservedInTurn     = oracle.NewCheck("L7", "reserves in turn")
	checkTransferLink       = oracle.NewCheck("L5", "links of transfers")
	checkTransferLife       = oracle.NewCheck("S12", "lives that transfers go to")
	checkTransferBounds     = oracle.NewCheck("S11", "bounds of transfers")
	checkTransferLayout     = oracle.NewCheck("S22", "layouts of transfers")
	checkTransferLent       = oracle.NewCheck("S19", "pages of pushes")
	checkTransferLength     = oracle.NewCheck("S21", "lengths of pushes")
	checkGivenBack          = oracle.NewCheck("S19", "pages given back")
)

// lentOracle judges what engines lend, and get back.
type lentOracle struct {
	judge
	perLife[lentLife]
}

type lentLife struct {
	reserves []effects.Ticket `snap:"skip"` // that engines gave, but for some that are over
}

func (s *lentLife) empty() { *s = lentLife{reserves: s.reserves[:0]} }

// given notes a Reserve as its engine gives it.
func (or *lentOracle) given(n *node, t effects.Ticket) {
	or.at(n).reserves = append(or.at(n).reserves, t)
}

func (or *lentOracle) reserved(n *node, e *effects.Deliver, c *command) {
	my := or.at(n)
	or.judged(checkReserved, checkReservedUnread, checkReservedGeneration)
	if len(e.Pages) != int(c.count) {
		or.fail(checkReserved, "node %d reserves %d pages instead of %d", n.it(), len(e.Pages), c.count)
		return
	}
	if id, page := or.all().loans.lentTo(n, e.Pages); id != 0 {
		or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while grant %d lets it be read",
			n.it(), n.itsPage(page), oracle.Ticket(e.Ticket), n.itsGrant(id))
		return
	}
	for _, p := range e.Pages {
		pg := &n.engine().pages[p.Index]
		switch {
		case pg.reserved != 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while ticket %d has it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket), oracle.Ticket(pg.reserved))
		case pg.writers > 0 || pg.granted != 0 && !or.all().bearer.lapsed(n, pg.granted):
			or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while grant %d lets it be written",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket), n.itsGrant(pg.granted))
		case pg.pins > 0 || pg.scatters > 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while its engine reads it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket))
		case pg.readers > 0:
			or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while a transfer may still read it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(e.Ticket))
		case p.Generation <= pg.last:
			or.fail(checkReservedGeneration, "node %d reserves page %d with generation %d after %d",
				n.it(), n.itsPage(n.numbered(p)), p.Generation, pg.last)
		}
		pg.reserved, pg.last, pg.granted, pg.trusted = e.Ticket, p.Generation, 0, 0
		n.engine().touch(p.Index)
	}
	// First in, first out: whoever asked earlier for no more must not still wait.
	my.reserves = slices.DeleteFunc(my.reserves, func(t effects.Ticket) bool { return or.w.commands[t-1].over })
	if len(my.reserves) > 0 {
		or.judged(checkReservedInTurn)
	}
	for _, t := range slices.Backward(my.reserves) {
		if t < e.Ticket && or.w.commands[t-1].count <= c.count {
			or.fail(checkReservedInTurn, "node %d reserves for ticket %d while ticket %d waits longer for no more pages",
				n.it(), oracle.Ticket(e.Ticket), oracle.Ticket(t))
			return
		}
	}
}

// waits is the oldest Reserve that a node's engine waits for; 0 if there is none.
func (or *lentOracle) waits(n *node) effects.Ticket {
	if !n.receives() {
		return 0
	}
	for _, t := range or.at(n).reserves {
		if !or.w.commands[t-1].over {
			return t
		}
	}
	return 0
}

// releasing clears what the engine had by a ticket, from before the machine knows.
func (or *lentOracle) releasing(n *node, t effects.Ticket) {
	c := &or.w.commands[t-1]
	for _, p := range c.pages {
		pg := &n.engine().pages[p.Index]
		switch {
		case c.want != plan.WantReserve:
			pg.pins--
		case pg.reserved == t: // Else it was given back before, and is another's by now.
			pg.reserved = 0
		}
		n.engine().touch(p.Index)
	}
}

// transferring checks a Transfer as it leaves the machine.
func (or *lentOracle) transferring(n *node, t *transfer, e *effects.Transfer) {
	t.reading = true
	or.judged(checkTransferLink)
	if t.link.told {
		or.fail(checkTransferLink, "node %d transfers on link %d, of whose loss it was told", n.it(), oracle.Link(t.link.id))
		return
	}
	or.all().lease.leasing(n, t)
	if t.read {
		or.all().queue.read(n, t)
	}
	for _, p := range e.Pairs {
		if or.w.script != nil && t.read && (or.truth().buffers[p.Remote.Buffer] != t.remote || t.link.peer != e.Peer) {
			or.all().fills.fetching(n, t, p)
			continue // Scenarios ask for what machines do not.
		}
		or.judged(checkTransferLife, checkTransferBounds, checkTransferLayout)
		target := or.truth().buffers[p.Remote.Buffer]
		if target == nil || target != t.remote ||
			!identity.OneLife(or.truth().incarnation(target.node.id, target.life), e.Peer) {
			or.fail(checkTransferLife, "node %d transfers to a buffer of another life than its link's", n.it())
			return
		}
		if int(p.Remote.Index) >= len(t.remote.pages) || int(p.Local.Index) >= len(n.pool.pages) {
			or.fail(checkTransferBounds, "node %d transfers to page %d of %d",
				n.it(), n.itsPage(p.Remote.Index), len(t.remote.pages))
			return
		}
		if t.remote.node.cfg.Layout != n.cfg.Layout {
			or.fail(checkTransferLayout, "node %d transfers to node %d, whose layout differs", n.it(), t.remote.node.it())
			return
		}
		if t.read {
			if or.all().fills.fetching(n, t, p); or.w.failure != nil {
				return
			}
			continue
		}
		src := &n.pool.pages[p.Local.Index]
		or.judged(checkTransferLent, checkTransferLength)
		if src.reserved == 0 || src.last != p.Local.Generation {
			or.fail(checkTransferLent, "node %d transfers page %d, which its engine has not lent",
				n.it(), n.itsPage(p.Local.Index))
			return
		}
		if lent := or.w.commands[src.reserved-1].pages; !hasLength(lent, p.Local) {
			or.fail(checkTransferLength, "node %d transfers %d bytes of page %d, more or fewer than its chunk has",
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
func (or *lentOracle) settled(t *transfer) {
	if !t.reading {
		return
	}
	t.reading = false
	if t.read {
		or.all().fills.fetched(t)
		return
	}
	for _, p := range t.pairs {
		t.local.pages[p.Local.Index].readers--
		t.local.touch(p.Local.Index)
	}
}

// lentBack checks that memory which the engine gets back is not read any more, nor may be.
func (or *lentOracle) lentBack(n *node, c *command) {
	or.judged(checkGivenBack)
	if id, page := or.all().loans.lentTo(n, c.pages); id != 0 {
		or.fail(checkGivenBack, "node %d gives page %d back to its engine while grant %d lets it be read",
			n.it(), n.itsPage(page), n.itsGrant(id))
		return
	}
	for _, p := range c.pages {
		if n.engine().pages[p.Index].readers > 0 {
			or.fail(checkGivenBack, "node %d gives page %d back to its engine while a transfer may still read it",
				n.it(), n.itsPage(n.numbered(p)))
			return
		}
	}
}

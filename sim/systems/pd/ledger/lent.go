package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkReserved           = oracle.NewCheck("S5", "reserved pages")
	checkReservedUnread     = oracle.NewCheck("S4", "reserved pages that are read")
	checkReservedGeneration = oracle.NewCheck("S2", "generations of reserved pages")
	checkReservedInTurn     = oracle.NewCheck("L7", "reserves in turn")
	checkTransferLink       = oracle.NewCheck("L5", "links of transfers")
	checkTransferLife       = oracle.NewCheck("S12", "incarnations that transfers go to")
	checkTransferBounds     = oracle.NewCheck("S11", "bounds of transfers")
	checkTransferLayout     = oracle.NewCheck("S22", "layouts of transfers")
	checkTransferLent       = oracle.NewCheck("S19", "pages of pushes")
	checkTransferLength     = oracle.NewCheck("S21", "lengths of pushes")
	checkGivenBack          = oracle.NewCheck("S19", "pages given back")
)

// lentOracle judges the pages that an engine reserves, lends to transfers, and gets back. The oracle checks that a
// reserved page has no second user (S4, S5), that Reserves are served in order (L7), that a push reads only pages which
// the engine has handed over (S19), and that the engine gets no page back which may still be read.
type lentOracle struct {
	judge
	perLife[lentLife]
}

func (*lentOracle) listen(l *oracle.Listen[lentOracle]) {
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Given) {
		if e.Command.Want == plan.WantReserve {
			o.given(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Reserved) { o.reserved(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Returned) { o.lentBack(e.Node, e.Command) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Stored) { o.stored(e.Node, e.Command) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Shared) { o.shared(e.Node, e.Command) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Withdrawn) { o.withdrawn(e.Node, e.Command) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e pd.Releasing) { o.releasing(e.Node, e.Ticket) })
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e world.Transferring) {
		o.transferring(e.Node, e.Transfer, e.Effect)
	})
	oracle.On(l, func(o *lentOracle, _ *oracle.Call, e world.TransferSettled) { o.settled(e.Transfer) })
}

// lentLife records the Reserves of an incarnation of a node.
type lentLife struct {
	reserves []effects.Ticket `snap:"skip"` // issued by the engine; may include a few that are over
}

func (s *lentLife) startReply() { *s = lentLife{reserves: s.reserves[:0]} }

// given records a Reserve when the engine issues the command.
func (or *lentOracle) given(n *world.Node, t effects.Ticket) {
	or.at(n).reserves = append(or.at(n).reserves, t)
}

// reserved checks the pages that the machine delivers for a Reserve, and records the pages as the engine's. The check
// fails if a page has another user, if a page's generation did not grow, or if an older Reserve for no more pages still
// waits.
func (or *lentOracle) reserved(n *world.Node, e *effects.Deliver, c *pd.Command) {
	my := or.at(n)
	or.judged(checkReserved, checkReservedUnread, checkReservedGeneration)
	if len(e.Pages) != int(c.Count) {
		or.fail(checkReserved, "node %d reserves %d pages instead of %d", n.It(), len(e.Pages), c.Count)
		return
	}
	if id, page := or.all().loans.lentTo(n, e.Pages); id != 0 {
		or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while grant %d lets it be read",
			n.It(), n.ItsPage(page), oracle.Ticket(e.Ticket), n.ItsGrant(id))
		return
	}
	for _, p := range e.Pages {
		if or.all().second.reserved(n, e.Ticket, p.Index); or.w.Failure != nil {
			return
		}
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Reserved != 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while ticket %d has it",
				n.It(), n.ItsPage(p.Index), oracle.Ticket(e.Ticket), oracle.Ticket(pg.Reserved))
		case pg.Writers > 0 || pg.Granted != 0 && !or.all().bearer.lapsed(n, pg.Granted):
			or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while grant %d lets it be written",
				n.It(), n.ItsPage(p.Index), oracle.Ticket(e.Ticket), n.ItsGrant(pg.Granted))
		case pg.Pins > 0 || pg.Scatters > 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while its engine reads it",
				n.It(), n.ItsPage(p.Index), oracle.Ticket(e.Ticket))
		case pg.Readers > 0:
			or.fail(checkReservedUnread, "node %d reserves page %d for ticket %d while a transfer may still read it",
				n.It(), n.ItsPage(p.Index), oracle.Ticket(e.Ticket))
		case p.Generation <= pg.Last:
			or.fail(checkReservedGeneration, "node %d reserves page %d with generation %d after %d",
				n.It(), n.ItsPage(p.Index), p.Generation, pg.Last)
		}
		pg.Reserved, pg.Last, pg.Granted, pg.Trusted, pg.Fill = e.Ticket, p.Generation, 0, 0, world.FillNone
		n.Pool.Touch(p.Index)
	}
	// Reserves are served first in, first out: an earlier Reserve for no more pages must not still be waiting.
	my.reserves = slices.DeleteFunc(my.reserves, func(t effects.Ticket) bool { return or.w.Commands[t-1].Over })
	if len(my.reserves) > 0 {
		or.judged(checkReservedInTurn)
	}
	for _, t := range slices.Backward(my.reserves) {
		if t < e.Ticket && or.w.Commands[t-1].Count <= c.Count {
			or.fail(checkReservedInTurn, "node %d reserves for ticket %d while ticket %d waits longer for no more pages",
				n.It(), oracle.Ticket(e.Ticket), oracle.Ticket(t))
			return
		}
	}
}

// releasing clears the engine's use of the pages of a ticket, before the machine receives the release.
func (or *lentOracle) releasing(n *world.Node, t effects.Ticket) {
	c := &or.w.Commands[t-1]
	for _, p := range c.Pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case c.Want != plan.WantReserve:
			pg.Pins--
		case pg.Reserved == t: // Otherwise the page was given back before and may have another user now.
			pg.Reserved = 0
		}
		n.Pool.Touch(p.Index)
	}
}

// stored ends the engine's use of the reserved pages that the node's cache has taken over.
func (or *lentOracle) stored(n *world.Node, c *pd.Command) {
	or.w.Commands[c.Target-1].Stored += len(c.Pages)
	for _, p := range c.Pages {
		if pg := &n.Pool.Pages[p.Index]; pg.Reserved == c.Target {
			pg.Reserved = 0
			n.Pool.Touch(p.Index)
		}
	}
}

// transferring checks a Transfer when the machine emits the Transfer, and counts the transfer as a reader of the pages.
func (or *lentOracle) transferring(n *world.Node, t *world.Transfer, e *effects.Transfer) {
	t.Reading = true
	or.judged(checkTransferLink)
	if t.Link.Told {
		or.fail(checkTransferLink, "node %d transfers on link %d, of whose loss it was told", n.It(), oracle.Link(t.Link.ID))
		return
	}
	or.all().lease.leasing(n, t)
	if t.Read {
		or.all().queue.read(n, t)
	}
	shared := or.all().shared.transferring(n, t)
	for i, p := range t.Pairs {
		if or.w.Failure != nil {
			return
		}
		if or.w.Script != nil && t.Read && (or.w.Buffers[p.Remote.Buffer] != t.Remote || t.Link.Peer != e.Peer) {
			or.all().fills.fetching(n, t, p)
			continue // A scenario may request transfers that no machine would.
		}
		or.judged(checkTransferLife, checkTransferBounds, checkTransferLayout)
		target := or.w.Buffers[p.Remote.Buffer]
		if target == nil || target != t.Remote ||
			!identity.SameIncarnation(or.truth().incarnation(target.Node.ID, target.Life), e.Peer) {
			or.fail(checkTransferLife, "node %d transfers to a buffer of another incarnation than its link's", n.It())
			return
		}
		if int(p.Remote.Index) >= len(t.Remote.Pages) || int(p.Local.Index) >= len(n.Pool.Pages) {
			or.fail(checkTransferBounds, "node %d transfers to page %d of %d",
				n.It(), n.ItsPage(p.Remote.Index), len(t.Remote.Pages))
			return
		}
		if there, ours := pd.Its(t.Remote.Node).Cfg.Layout, pd.Its(n).Cfg.Layout; there != together(ours, &e.Gather) {
			or.fail(checkTransferLayout, "node %d transfers to node %d, whose layout differs", n.It(), t.Remote.Node.It())
			return
		}
		if t.Read {
			if or.all().fills.fetching(n, t, p); or.w.Failure != nil {
				return
			}
			if or.all().second.reading(n, t, p); or.w.Failure != nil {
				return
			}
			continue
		}
		if shared {
			continue
		}
		if or.all().second.putting(t, p); or.w.Failure != nil {
			return
		}
		for _, local := range t.Sources(i) {
			if or.lending(n, local); or.w.Failure != nil {
				return
			}
		}
	}
}

// lending checks a page that a push reads: the engine has handed the page over in this generation (S19), and the
// transfer has the length of the chunk (S21). Then the reader is counted.
func (or *lentOracle) lending(n *world.Node, local effects.Page) {
	src := &n.Pool.Pages[local.Index]
	or.judged(checkTransferLent, checkTransferLength)
	if src.Reserved == 0 || src.Last != local.Generation {
		or.fail(checkTransferLent, "node %d transfers page %d, which its engine has not handed over",
			n.It(), n.ItsPage(local.Index))
		return
	}
	if lent := or.w.Commands[src.Reserved-1].Pages; !hasLength(lent, local) && or.w.Flows.Alone() == nil {
		or.fail(checkTransferLength, "node %d transfers %d bytes of page %d, more or fewer than its chunk has",
			n.It(), local.Length, n.ItsPage(local.Index))
		return
	}
	src.Readers++
	n.Pool.Touch(local.Index)
}

// together returns the layout of a page that gathers layers as g says, or the zero layout if the stripes do not match.
func together(layer protocol.Layout, g *effects.Gather) protocol.Layout {
	if g.Layers == 0 {
		return layer
	}
	whole, stripes, _ := layer.AllLayers(g.Layers)
	if stripes != g.Stripes {
		return protocol.Layout{}
	}
	return whole
}

// hasLength reports whether the pages include the page of p, with the same length.
func hasLength(pages []effects.Page, p effects.Page) bool {
	for _, q := range pages {
		if q.Index == p.Index {
			return q.Length == p.Length
		}
	}
	return false
}

// settled ends a transfer's access to pages when the initiator is notified that the transfer is settled.
func (or *lentOracle) settled(t *world.Transfer) {
	if !t.Reading {
		return
	}
	t.Reading = false
	if t.Read {
		or.all().fills.fetched(t)
		return
	}
	for i := range t.Pairs {
		for _, p := range t.Sources(i) {
			t.Local.Pages[p.Index].Readers--
			t.Local.Touch(p.Index)
		}
	}
}

// lentBack checks that nothing reads, and nothing may still read, the pages which the engine gets back (S19).
func (or *lentOracle) lentBack(n *world.Node, c *pd.Command) {
	or.judged(checkGivenBack)
	if id, page := or.all().loans.lentTo(n, c.Pages); id != 0 {
		or.fail(checkGivenBack, "node %d gives page %d back to its engine while grant %d lets it be read",
			n.It(), n.ItsPage(page), n.ItsGrant(id))
		return
	}
	for _, p := range c.Pages {
		if n.Pool.Pages[p.Index].Readers > 0 {
			or.fail(checkGivenBack, "node %d gives page %d back to its engine while a transfer may still read it",
				n.It(), n.ItsPage(p.Index))
			return
		}
	}
}

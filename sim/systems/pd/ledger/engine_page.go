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
	checkReserved            = oracle.NewCheck("S5", "reserved pages")
	checkReservedUnused      = oracle.NewCheck("S4", "reserved pages that are read")
	checkReservedGeneration  = oracle.NewCheck("S2", "generations of reserved pages")
	checkReservedOrder       = oracle.NewCheck("L7", "reserves in order")
	checkTransferLink        = oracle.NewCheck("L5", "links of transfers")
	checkTransferIncarnation = oracle.NewCheck("S12", "incarnations that transfers write to or read from")
	checkTransferBounds      = oracle.NewCheck("S11", "bounds of transfers")
	checkTransferLayout      = oracle.NewCheck("S22", "layouts of transfers")
	checkTransferPages       = oracle.NewCheck("S19", "pages of pushes")
	checkTransferLength      = oracle.NewCheck("S21", "lengths of pushes")
	checkReturnedPages       = oracle.NewCheck("S19", "pages given back")
)

// enginePageOracle judges the pages that an engine reserves, lends to transfers, and gets back. The oracle checks that
// a reserved page has no second user (S4, S5), that Reserves are served in order (L7), that a push reads only pages
// which the engine has handed over (S19), and that the engine gets no page back which may still be read.
type enginePageOracle struct {
	oracleBase
	perIncarnation[enginePageState]
}

func (*enginePageOracle) subscribe(l *oracle.Subscriptions[enginePageOracle]) {
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.CommandGiven) {
		if e.Command.Kind == plan.CommandReserve {
			o.recordReserve(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.ReserveOutcome) {
		o.verifyReserved(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.PutReturned) { o.verifyReturned(e.Node, e.Command) })
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.PagesStored) { o.releaseStored(e.Node, e.Command) })
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.PagesShared) { o.recordShared(e.Node, e.Command) })
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.PagesWithdrawn) { o.verifyWithdrawn(e.Node, e.Command) })
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e pd.PagesReleased) { o.releasePages(e.Node, e.Ticket) })
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e world.StartingTransfer) {
		o.verifyTransfer(e.Node, e.Transfer, e.Effect)
	})
	oracle.On(l, func(o *enginePageOracle, _ *oracle.Call, e world.TransferSettled) { o.endAccess(e.Transfer) })
}

// enginePageState records the Reserves of an incarnation of a node.
type enginePageState struct {
	reserves []effects.Ticket `snap:"skip"` // issued by the engine; may include a few that are over
}

func (s *enginePageState) clearForReuse() { *s = enginePageState{reserves: s.reserves[:0]} }

// recordReserve records a Reserve when the engine issues the command.
func (or *enginePageOracle) recordReserve(n *world.Node, t effects.Ticket) {
	or.stateOf(n).reserves = append(or.stateOf(n).reserves, t)
}

// verifyReserved checks the pages that the machine delivers for a Reserve, and records the pages as the engine's. The
// check fails if a page has another user, if a page's generation did not grow, or if an older Reserve for no more pages
// still waits.
func (or *enginePageOracle) verifyReserved(n *world.Node, e *effects.Deliver, c *pd.Command) {
	state := or.stateOf(n)
	or.countJudged(checkReserved, checkReservedUnused, checkReservedGeneration)
	if len(e.Pages) != int(c.Count) {
		or.fail(checkReserved, "node %d reserves %d pages instead of %d", n.AsSubject(), len(e.Pages), c.Count)
		return
	}
	if id, page := or.oracles().readLeases.findLease(n, e.Pages); id != 0 {
		or.fail(checkReservedUnused, "node %d reserves page %d for ticket %d while the page may be read under grant %d",
			n.AsSubject(), n.PageSubject(page), oracle.Ticket(e.Ticket), n.GrantSubject(id))
		return
	}
	for _, p := range e.Pages {
		if or.oracles().secondPools.verifyReservedPool(n, e.Ticket, p.Index); or.w.Failure != nil {
			return
		}
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Reserved != 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while the page is reserved for ticket %d",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(e.Ticket), oracle.Ticket(pg.Reserved))
		case pg.Writers > 0 || pg.Granted != 0 && !or.oracles().plainSenders.isExpired(n, pg.Granted):
			or.fail(checkReservedUnused, "node %d reserves page %d for ticket %d while the page may be written under grant %d",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(e.Ticket), n.GrantSubject(pg.Granted))
		case pg.Pins > 0 || pg.Scatters > 0:
			or.fail(checkReserved, "node %d reserves page %d for ticket %d while its engine reads it",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(e.Ticket))
		case pg.Readers > 0:
			or.fail(checkReservedUnused, "node %d reserves page %d for ticket %d while a transfer may still read it",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(e.Ticket))
		case p.Generation <= pg.LastGeneration:
			or.fail(checkReservedGeneration, "node %d reserves page %d with generation %d after %d",
				n.AsSubject(), n.PageSubject(p.Index), p.Generation, pg.LastGeneration)
		}
		pg.Reserved, pg.LastGeneration, pg.Granted, pg.TrustedGrant, pg.FillState = e.Ticket, p.Generation, 0, 0, world.FillNone
		n.Pool.UpdateInUse(p.Index)
	}
	// Reserves are served first in, first out: an earlier Reserve for no more pages must not still be waiting.
	state.reserves = slices.DeleteFunc(state.reserves, func(t effects.Ticket) bool { return or.w.Commands[t-1].Finished })
	if len(state.reserves) > 0 {
		or.countJudged(checkReservedOrder)
	}
	for _, t := range slices.Backward(state.reserves) {
		if hasTenantShares(n) && tenantOfReserve(&or.w.Commands[t-1]) != tenantOfReserve(c) {
			continue // The share of the other tenant may be used up.
		}
		if t < e.Ticket && or.w.Commands[t-1].Count <= c.Count {
			or.fail(checkReservedOrder, "node %d reserves for ticket %d while ticket %d waits longer for no more pages",
				n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Ticket(t))
			return
		}
	}
}

// releasePages clears the engine's use of the pages of a ticket, before the machine receives the release.
func (or *enginePageOracle) releasePages(n *world.Node, t effects.Ticket) {
	c := &or.w.Commands[t-1]
	for _, p := range c.Pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case c.Kind != plan.CommandReserve:
			pg.Pins--
		case pg.Reserved == t: // Otherwise the page was given back before and may have another user now.
			pg.Reserved = 0
		}
		n.Pool.UpdateInUse(p.Index)
	}
}

// releaseStored ends the engine's use of the reserved pages that the node's cache has taken over.
func (or *enginePageOracle) releaseStored(n *world.Node, c *pd.Command) {
	or.w.Commands[c.Target-1].StoredPages += len(c.Pages)
	for _, p := range c.Pages {
		if pg := &n.Pool.Pages[p.Index]; pg.Reserved == c.Target {
			pg.Reserved = 0
			n.Pool.UpdateInUse(p.Index)
		}
	}
}

// verifyTransfer checks a Transfer when the machine emits the Transfer, and counts the transfer as a reader of the
// pages.
func (or *enginePageOracle) verifyTransfer(n *world.Node, t *world.Transfer, e *effects.Transfer) {
	t.LocalInUse = true
	or.countJudged(checkTransferLink)
	if t.Link.LossReported {
		or.fail(checkTransferLink, "node %d transfers on link %d after the node was notified that the link is lost", n.AsSubject(),
			oracle.Link(t.Link.ID))
		return
	}
	or.oracles().leaseTimes.verifyTransferLease(n, t)
	if t.Read {
		or.oracles().queue.beginRead(n, t)
	}
	shared := or.oracles().lookups.verifyPush(n, t)
	for i, p := range t.Pairs {
		if or.w.Failure != nil {
			return
		}
		if or.w.Script != nil && t.Read && (or.w.Buffers[p.Remote.Buffer] != t.Remote || t.Link.Peer != e.Peer) {
			or.oracles().readFills.verifyReadTarget(n, t, p)
			continue // A scenario may request transfers that no machine would.
		}
		or.countJudged(checkTransferIncarnation, checkTransferBounds, checkTransferLayout)
		target := or.w.Buffers[p.Remote.Buffer]
		if target == nil || target != t.Remote ||
			!identity.SameIncarnation(or.facts().incarnationOf(target.Node.ID, target.Incarnation), e.Peer) {
			or.fail(checkTransferIncarnation, "node %d transfers to a buffer of another incarnation than its link's", n.AsSubject())
			return
		}
		if int(p.Remote.Index) >= len(t.Remote.Pages) || int(p.Local.Index) >= len(n.Pool.Pages) {
			or.fail(checkTransferBounds, "node %d transfers to page %d of %d",
				n.AsSubject(), n.PageSubject(p.Remote.Index), len(t.Remote.Pages))
			return
		}
		theirLayout, ourLayout := pd.InfoOf(t.Remote.Node).Cfg.Layout, pd.InfoOf(n).Cfg.Layout
		if theirLayout != gatheredLayout(ourLayout, &e.Gather) {
			or.fail(checkTransferLayout, "node %d transfers to node %d, whose layout differs", n.AsSubject(), t.Remote.Node.AsSubject())
			return
		}
		if t.Read {
			if or.oracles().readFills.verifyReadTarget(n, t, p); or.w.Failure != nil {
				return
			}
			if or.oracles().secondPools.verifyReadPool(n, t, p); or.w.Failure != nil {
				return
			}
			continue
		}
		if shared {
			continue
		}
		if or.oracles().secondPools.verifyPutPool(t, p); or.w.Failure != nil {
			return
		}
		for _, local := range t.Sources(i) {
			if or.verifyPushSource(n, local); or.w.Failure != nil {
				return
			}
		}
	}
}

// verifyPushSource checks a page that a push reads: the engine has handed the page over in this generation (S19), and
// the transfer has the length of the chunk (S21). Then the reader is counted.
func (or *enginePageOracle) verifyPushSource(n *world.Node, local effects.Page) {
	src := &n.Pool.Pages[local.Index]
	or.countJudged(checkTransferPages, checkTransferLength)
	if src.Reserved == 0 || src.LastGeneration != local.Generation {
		or.fail(checkTransferPages, "node %d transfers page %d, which its engine has not handed over",
			n.AsSubject(), n.PageSubject(local.Index))
		return
	}
	if enginePages := or.w.Commands[src.Reserved-1].Pages; !hasLength(enginePages, local) && or.w.Flows.ExclusivePart() == nil {
		or.fail(checkTransferLength, "node %d transfers %d bytes of page %d, which is not the length of the chunk",
			n.AsSubject(), local.Length, n.PageSubject(local.Index))
		return
	}
	src.Readers++
	n.Pool.UpdateInUse(local.Index)
}

// gatheredLayout returns the layout of a page that gathers layers as g says, or the zero layout if the stripes do not
// match.
func gatheredLayout(layer protocol.Layout, g *effects.Gather) protocol.Layout {
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

// endAccess ends a transfer's access to pages when the initiator is notified that the transfer is settled.
func (or *enginePageOracle) endAccess(t *world.Transfer) {
	if !t.LocalInUse {
		return
	}
	t.LocalInUse = false
	if t.Read {
		or.oracles().readFills.endRead(t)
		return
	}
	for i := range t.Pairs {
		for _, p := range t.Sources(i) {
			t.Local.Pages[p.Index].Readers--
			t.Local.UpdateInUse(p.Index)
		}
	}
}

// verifyReturned checks that nothing reads, and nothing may still read, the pages which the engine gets back (S19).
func (or *enginePageOracle) verifyReturned(n *world.Node, c *pd.Command) {
	or.countJudged(checkReturnedPages)
	if id, page := or.oracles().readLeases.findLease(n, c.Pages); id != 0 {
		or.fail(checkReturnedPages, "node %d gives page %d back to the engine while the page may be read under grant %d",
			n.AsSubject(), n.PageSubject(page), n.GrantSubject(id))
		return
	}
	for _, p := range c.Pages {
		if n.Pool.Pages[p.Index].Readers > 0 {
			or.fail(checkReturnedPages, "node %d gives page %d back to its engine while a transfer may still read it",
				n.AsSubject(), n.PageSubject(p.Index))
			return
		}
	}
}

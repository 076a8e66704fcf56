package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLeaseID         = oracle.NewCheck("S12", "ids of read leases")
	checkLeaseUnwritten  = oracle.NewCheck("S4", "leased pages that are stored into")
	checkLeaseGeneration = oracle.NewCheck("S2", "generations of leased pages")
	checkLeaseOfEngine   = oracle.NewCheck("S19", "leased pages of the engine")
	checkLeaseLength     = oracle.NewCheck("S21", "lengths of leased pages")
	checkPublish         = oracle.NewCheck("S4", "pages that begin a generation")
	checkLeaseMark       = oracle.NewCheck("S6", "leased pages below the mark")
)

// readLeaseOracle judges the read leases that a node gives (S4, S6, S19).
type readLeaseOracle struct{ oracleBase }

func (*readLeaseOracle) subscribe(l *oracle.Subscriptions[readLeaseOracle]) {
	oracle.On(l, func(o *readLeaseOracle, _ *oracle.Call, e world.PublishingPages) { o.verifyPublished(e.Node, e.Pages) })
	oracle.On(l, func(o *readLeaseOracle, _ *oracle.Call, e world.LeasingPages) { o.verifyLease(e.Node, e.Grant) })
}

// verifyLease checks a read lease when the owner gives the lease: no transfer may store into the pages while the lease
// lasts, the generations are current, and a sender leases only pages that the engine has handed over.
func (or *readLeaseOracle) verifyLease(n *world.Node, g *world.Grant) {
	or.countJudged(checkLeaseID)
	if n.Grants[g.ID] != nil {
		or.fail(checkLeaseID, "node %d grants under id %d a second time", n.AsSubject(), g.ID)
		return
	}
	// A lease that a peer requested covers pages of the store, which no engine put.
	g.Lease.OnRequest = n.LendsChunks && n.IsReceiver() && n.Pool.Pages[g.Pages[0].Index].Reserved == 0
	put := n.IsSender() && !g.Lease.OnRequest
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if or.countJudged(checkLeaseUnwritten, checkLeaseGeneration); put {
			or.countJudged(checkLeaseOfEngine, checkLeaseLength)
		}
		switch {
		case pg.Writers > 0 || pg.Granted != 0 && !or.oracles().plainSenders.isExpired(n, pg.Granted):
			or.fail(checkLeaseUnwritten, "node %d leases page %d under grant %d while a transfer may still store into it",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(g.ID))
		case pg.LastGeneration != p.Generation || pg.Generation != p.Generation:
			or.fail(checkLeaseGeneration, "node %d leases page %d in generation %d under grant %d, and the page has generation %d",
				n.AsSubject(), n.PageSubject(p.Index), p.Generation, n.GrantSubject(g.ID), pg.LastGeneration)
		case n.ArenaPages > 0:
			or.oracles().arena.verifyLease(n, g, p)
		case put && pg.Reserved == 0:
			or.fail(checkLeaseOfEngine, "node %d leases page %d under grant %d, which its engine has not handed over",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(g.ID))
		case put && !hasLength(or.w.Commands[pg.Reserved-1].Pages, p):
			or.fail(checkLeaseLength, "node %d leases %d bytes of page %d, which is not the length of the chunk",
				n.AsSubject(), p.Length, n.PageSubject(p.Index))
		}
		if or.w.Failure != nil {
			return
		}
		g.Lease.FirstStamps = append(g.Lease.FirstStamps, pg.Stamps[0])
		if put {
			g.Lease.PutTicket = or.newestPut(pg.Reserved, p)
		}
	}
	if !put {
		return
	}
	if or.w.Script == nil {
		or.oracles().offerQueue.verifyOffer(n, g)
	}
	or.verifyMark(n, g)
}

// newestPut returns the newest put of a page that a Reserve delivered, and 0 if there is none.
func (or *readLeaseOracle) newestPut(reserve effects.Ticket, page effects.Page) effects.Ticket {
	return or.w.PutOf(&or.w.Commands[reserve-1], page)
}

// recordRevoked ends a read lease when the owner is notified that the lease is revoked.
func (or *readLeaseOracle) recordRevoked(n *world.Node, id effects.GrantID) {
	if g := n.Grants[id]; g != nil {
		g.Lease.Revoked = true
	}
}

// findLease returns a read lease in force on any of the pages, and the page. Without such a lease the results are 0 and
// 0.
func (or *readLeaseOracle) findLease(n *world.Node, pages []effects.Page) (effects.GrantID, uint32) {
	n.Pool.ReadLeases = slices.DeleteFunc(n.Pool.ReadLeases, func(g *world.Grant) bool { return !or.w.IsLeaseLive(n, g) })
	for _, g := range n.Pool.ReadLeases {
		for _, p := range pages {
			if g.PageIndex(p.Index) >= 0 {
				return g.ID, p.Index
			}
		}
	}
	return 0, 0
}

// verifyPublished checks that a page which gets a new generation has no user (S4).
func (or *readLeaseOracle) verifyPublished(n *world.Node, pages []effects.Page) {
	or.countJudged(checkPublish)
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Writers > 0 || pg.Readers > 0:
			or.fail(checkPublish, "node %d gives page %d another generation while a transfer may still access the page",
				n.AsSubject(), n.PageSubject(p.Index))
		case pg.Pins > 0 || pg.Scatters > 0 || pg.Reserved != 0:
			or.fail(checkPublish, "node %d gives page %d another generation while the page belongs to the engine", n.AsSubject(),
				n.PageSubject(p.Index))
		}
	}
	if id, page := or.findLease(n, pages); id != 0 {
		or.fail(checkPublish, "node %d gives page %d another generation while the page may be read under grant %d",
			n.AsSubject(), n.PageSubject(page), n.GrantSubject(id))
	}
}

// verifyMark checks the high-water mark of read leases: leased pages leave free the share of the pool that puts in
// progress need (S6).
func (or *readLeaseOracle) verifyMark(n *world.Node, more *world.Grant) {
	or.countJudged(checkLeaseMark)
	limit := or.w.LeasedPagesMax(n)
	n.Pool.ReadLeases = slices.DeleteFunc(n.Pool.ReadLeases, func(g *world.Grant) bool { return !or.w.IsLeaseLive(n, g) })
	pages := len(more.Pages)
	for _, g := range n.Pool.ReadLeases {
		pages += len(g.Pages)
	}
	if pages > limit {
		or.fail(checkLeaseMark, "node %d leases %d pages with grant %d, %d are allowed",
			n.AsSubject(), pages, n.GrantSubject(more.ID), limit)
	}
}

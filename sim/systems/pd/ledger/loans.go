package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLoanID         = oracle.NewCheck("S12", "ids of read leases")
	checkLoanUnwritten  = oracle.NewCheck("S4", "leased pages that are stored into")
	checkLoanGeneration = oracle.NewCheck("S2", "generations of leased pages")
	checkLoanOfEngine   = oracle.NewCheck("S19", "leased pages of the engine")
	checkLoanLength     = oracle.NewCheck("S21", "lengths of leased pages")
	checkPublish        = oracle.NewCheck("S4", "pages that begin a generation")
	checkLoanMark       = oracle.NewCheck("S6", "leased pages below the mark")
)

// loansOracle judges the read leases that a node gives (S4, S6, S19).
type loansOracle struct{ judge }

func (*loansOracle) listen(l *oracle.Listen[loansOracle]) {
	oracle.On(l, func(o *loansOracle, _ *oracle.Call, e world.Publishing) { o.publishing(e.Node, e.Pages) })
	oracle.On(l, func(o *loansOracle, _ *oracle.Call, e world.Lending) { o.lending(e.Node, e.Grant) })
}

// lending checks a read lease when the owner gives the lease: no transfer may store into the pages while the lease
// lasts, the generations are current, and a sender leases only pages that the engine has handed over.
func (or *loansOracle) lending(n *world.Node, g *world.Grant) {
	or.judged(checkLoanID)
	if n.Grants[g.ID] != nil {
		or.fail(checkLoanID, "node %d grants under id %d a second time", n.It(), g.ID)
		return
	}
	// A lease that a peer requested covers pages of the store, which no engine put.
	g.Loan.Asked = n.Lends && n.Receives() && n.Pool.Pages[g.Pages[0].Index].Reserved == 0
	put := n.Sends() && !g.Loan.Asked
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if or.judged(checkLoanUnwritten, checkLoanGeneration); put {
			or.judged(checkLoanOfEngine, checkLoanLength)
		}
		switch {
		case pg.Writers > 0 || pg.Granted != 0 && !or.all().bearer.lapsed(n, pg.Granted):
			or.fail(checkLoanUnwritten, "node %d leases page %d under grant %d while a transfer may still store into it",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(g.ID))
		case pg.Last != p.Generation || pg.Generation != p.Generation:
			or.fail(checkLoanGeneration, "node %d leases page %d in generation %d under grant %d, it is in %d",
				n.It(), n.ItsPage(p.Index), p.Generation, n.ItsGrant(g.ID), pg.Last)
		case n.Arena > 0:
			or.all().arena.lending(n, g, p)
		case put && pg.Reserved == 0:
			or.fail(checkLoanOfEngine, "node %d leases page %d under grant %d, which its engine has not handed over",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(g.ID))
		case put && !hasLength(or.w.Commands[pg.Reserved-1].Pages, p):
			or.fail(checkLoanLength, "node %d leases %d bytes of page %d, more or fewer than its chunk has",
				n.It(), p.Length, n.ItsPage(p.Index))
		}
		if or.w.Failure != nil {
			return
		}
		g.Loan.Held = append(g.Loan.Held, pg.Stamps[0])
		if put {
			g.Loan.Put = or.putOf(pg.Reserved, p)
		}
	}
	if !put {
		return
	}
	if or.w.Script == nil {
		or.all().pressure.offeredInTurn(n, g)
	}
	or.capped(n, g)
}

// putOf returns the newest put of a page that a Reserve delivered, and 0 if there is none.
func (or *loansOracle) putOf(reserve effects.Ticket, page effects.Page) effects.Ticket {
	return or.w.PutOf(&or.w.Commands[reserve-1], page)
}

// revokedLoan ends a read lease when the owner is notified that the lease is revoked.
func (or *loansOracle) revokedLoan(n *world.Node, id effects.GrantID) {
	if g := n.Grants[id]; g != nil {
		g.Loan.Revoked = true
	}
}

// lentTo returns a read lease in force on any of the pages, and the page. Without such a lease the results are 0 and 0.
func (or *loansOracle) lentTo(n *world.Node, pages []effects.Page) (effects.GrantID, uint32) {
	n.Pool.Lent = slices.DeleteFunc(n.Pool.Lent, func(g *world.Grant) bool { return !or.w.Standing(n, g) })
	for _, g := range n.Pool.Lent {
		for _, p := range pages {
			if g.Place(p.Index) >= 0 {
				return g.ID, p.Index
			}
		}
	}
	return 0, 0
}

// publishing checks that a page which gets a new generation has no user (S4).
func (or *loansOracle) publishing(n *world.Node, pages []effects.Page) {
	or.judged(checkPublish)
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Writers > 0 || pg.Readers > 0:
			or.fail(checkPublish, "node %d gives page %d another generation while a transfer may still touch it",
				n.It(), n.ItsPage(p.Index))
		case pg.Pins > 0 || pg.Scatters > 0 || pg.Reserved != 0:
			or.fail(checkPublish, "node %d gives page %d another generation while its engine has it", n.It(),
				n.ItsPage(p.Index))
		}
	}
	if id, page := or.lentTo(n, pages); id != 0 {
		or.fail(checkPublish, "node %d gives page %d another generation while grant %d lets it be read",
			n.It(), n.ItsPage(page), n.ItsGrant(id))
	}
}

// capped checks the high-water mark of read leases: leased pages leave free the share of the pool that puts in progress
// need (S6).
func (or *loansOracle) capped(n *world.Node, more *world.Grant) {
	or.judged(checkLoanMark)
	most := or.w.LentMax(n)
	n.Pool.Lent = slices.DeleteFunc(n.Pool.Lent, func(g *world.Grant) bool { return !or.w.Standing(n, g) })
	pages := len(more.Pages)
	for _, g := range n.Pool.Lent {
		pages += len(g.Pages)
	}
	if pages > most {
		or.fail(checkLoanMark, "node %d leases %d pages with grant %d, %d are allowed",
			n.It(), pages, n.ItsGrant(more.ID), most)
	}
}

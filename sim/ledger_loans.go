package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkLoanID         = oracle.NewCheck("S12", "ids of loans")
	checkLoanUnwritten  = oracle.NewCheck("S4", "lent pages that are stored into")
	checkLoanGeneration = oracle.NewCheck("S2", "generations of lent pages")
	checkLoanOfEngine   = oracle.NewCheck("S19", "lent pages of the engine")
	checkLoanLength     = oracle.NewCheck("S21", "lengths of lent pages")
	checkPublish        = oracle.NewCheck("S4", "pages that begin a life")
	checkLoanMark       = oracle.NewCheck("S6", "lent pages below the mark")
)

// loansOracle judges what is lent to be read.
type loansOracle struct{ judge }

// lending checks that what may be loaded from now on stays what it is: nobody stores into it, and
// a sender has it from its engine.
func (or *loansOracle) lending(n *node, g *grant) {
	or.judged(checkLoanID)
	if n.grants[g.id] != nil {
		or.fail(checkLoanID, "node %d grants under id %d a second time", n.it(), g.id)
		return
	}
	for _, p := range g.pages {
		pg := &n.pool.pages[p.Index]
		if or.judged(checkLoanUnwritten, checkLoanGeneration); n.sends() && n.device == nil {
			or.judged(checkLoanOfEngine, checkLoanLength)
		}
		switch {
		case pg.writers > 0 || pg.granted != 0 && !or.all().bearer.lapsed(n, pg.granted):
			or.fail(checkLoanUnwritten, "node %d lends page %d under grant %d while a transfer may still store into it",
				n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
		case pg.last != p.Generation || pg.generation != p.Generation:
			or.fail(checkLoanGeneration, "node %d lends page %d in generation %d under grant %d, it is in %d",
				n.it(), n.itsPage(p.Index), p.Generation, n.itsGrant(g.id), pg.last)
		case n.device != nil:
			or.all().offload.lendingCopy(n, g, p)
		case n.sends() && pg.reserved == 0:
			or.fail(checkLoanOfEngine, "node %d lends page %d under grant %d, which its engine has not lent",
				n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
		case n.sends() && !hasLength(or.w.commands[pg.reserved-1].pages, p):
			or.fail(checkLoanLength, "node %d lends %d bytes of page %d, more or fewer than its chunk has",
				n.it(), p.Length, n.itsPage(p.Index))
		}
		if or.w.failure != nil {
			return
		}
		g.loan.held = append(g.loan.held, pg.stamps[0])
		if n.sends() && n.device == nil {
			g.loan.put = or.putOf(pg.reserved)
		}
	}
	if !n.sends() {
		return
	}
	if or.w.script == nil {
		or.all().pressure.offeredInTurn(n, g)
	}
	if n.device == nil { // Else they were counted as they were copied to.
		or.capped(n, g)
	}
}

// putOf is the newest put of the pages that a Reserve gave; 0 if there is none.
func (or *loansOracle) putOf(reserve effects.Ticket) effects.Ticket {
	c := &or.w.commands[reserve-1]
	if b := or.w.jobs[c.job].batches; c.batch < len(b) {
		return b[c.batch].put
	}
	return 0
}

// revokedLoan ends a loan as its owner is told so.
func (or *loansOracle) revokedLoan(n *node, id effects.GrantID) {
	if g := n.grants[id]; g != nil {
		g.loan.revoked = true
	}
}

// lentTo finds a loan that one of the pages is under, and which.
func (or *loansOracle) lentTo(n *node, pages []effects.Page) (effects.GrantID, uint32) {
	n.pool.lent = slices.DeleteFunc(n.pool.lent, func(g *grant) bool { return !or.w.standing(n, g) })
	if n.poolOf(pages) != n.pool {
		return 0, 0
	}
	for _, g := range n.pool.lent {
		for _, p := range pages {
			if g.place(p.Index) >= 0 {
				return g.id, p.Index
			}
		}
	}
	return 0, 0
}

// publishing checks that a page which begins another life is nobody else's.
func (or *loansOracle) publishing(n *node, pages []effects.Page) {
	or.judged(checkPublish)
	for _, p := range pages {
		pg := &n.poolOf(pages).pages[p.Index]
		switch {
		case pg.writers > 0 || pg.readers > 0:
			or.fail(checkPublish, "node %d gives page %d another life while a transfer may still touch it",
				n.it(), n.itsPage(n.numbered(p)))
		case pg.pins > 0 || pg.scatters > 0 || pg.reserved != 0:
			or.fail(checkPublish, "node %d gives page %d another life while its engine has it", n.it(), n.itsPage(n.numbered(p)))
		case or.all().offload.owned(pg):
			or.fail(checkPublish, "node %d gives page %d another life while ticket %d has it",
				n.it(), n.itsPage(n.numbered(p)), oracle.Ticket(pg.owner))
		}
	}
	if id, page := or.lentTo(n, pages); id != 0 {
		or.fail(checkPublish, "node %d gives page %d another life while grant %d lets it be read",
			n.it(), n.itsPage(page), n.itsGrant(id))
	}
}

// capped checks the high-water mark: what is lent leaves the share of the pool that puts under
// way need (S6).
func (or *loansOracle) capped(n *node, more *grant) {
	or.judged(checkLoanMark)
	most := or.w.lentMax(n)
	n.pool.lent = slices.DeleteFunc(n.pool.lent, func(g *grant) bool { return !or.w.standing(n, g) })
	pages := len(more.pages)
	for _, g := range n.pool.lent {
		pages += len(g.pages)
	}
	if pages > most {
		or.fail(checkLoanMark, "node %d lends %d pages with grant %d, %d are allowed",
			n.it(), pages, n.itsGrant(more.id), most)
	}
}

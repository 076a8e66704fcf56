package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What a read fills, at its reader.

// What is judged here.
var (
	checkReadScattered  = oracle.NewCheck("S15", "reads into staging pages")
	checkReadAlone      = oracle.NewCheck("S4", "reads into pages of nobody")
	checkReadGranted    = oracle.NewCheck("S3", "reads into pages not granted")
	checkReadGeneration = oracle.NewCheck("S2", "generations of pages read into")
	checkReadEnded      = oracle.NewCheck("S19", "reads before the word of their end")
	checkReadLength     = oracle.NewCheck("S21", "lengths of reads")
	checkReadyRead      = oracle.NewCheck("S1", "ready pages that were read")
	checkReadyInTime    = oracle.NewCheck("S24", "ready pages read in time")
	checkLoad           = oracle.NewCheck("S3", "loads")
	checkLoadScattered  = oracle.NewCheck("S15", "loads into staging pages")
	checkPassLent       = oracle.NewCheck("S19", "copies that pass, of lent pages")
	checkPassContent    = oracle.NewCheck("S1", "content of copies that pass")
)

// fillsOracle judges what reads store.
type fillsOracle struct{ judge }

// fetching checks a Transfer that reads as it leaves the machine: its pages are fresh, and
// nobody else's until it is settled.
func (or *fillsOracle) fetching(n *node, t *transfer, p effects.Pair) {
	pg := &n.pool.pages[p.Local.Index]
	or.judged(checkReadScattered, checkReadAlone, checkReadGranted, checkReadGeneration)
	if or.w.plan.Leased && t.under != nil {
		or.judged(checkReadEnded)
	}
	switch {
	case pg.scatters > 0:
		or.fail(checkReadScattered, "node %d reads into page %d with transfer %d while its engine is handed what that holds",
			n.it(), n.itsPage(p.Local.Index), oracle.Transfer(t.id))
	case pg.writers > 0 || pg.readers > 0:
		or.fail(checkReadAlone, "node %d reads into page %d with transfer %d while another may still touch it",
			n.it(), n.itsPage(p.Local.Index), oracle.Transfer(t.id))
	case pg.pins > 0 || pg.reserved != 0 && !or.w.recalls(pg.reserved):
		or.fail(checkReadAlone, "node %d reads into page %d with transfer %d while its engine has it",
			n.it(), n.itsPage(p.Local.Index), oracle.Transfer(t.id))
	case pg.granted != 0 && !or.w.plan.Leased:
		or.fail(checkReadGranted, "node %d reads into page %d with transfer %d while it is granted under %d",
			n.it(), n.itsPage(p.Local.Index), oracle.Transfer(t.id), n.itsGrant(pg.granted))
	case p.Local.Generation != pg.generation,
		!n.staging(pg) && !or.w.recalls(pg.reserved) && p.Local.Generation <= pg.last:
		or.fail(checkReadGeneration, "node %d reads into page %d in generation %d after %d",
			n.it(), n.itsPage(p.Local.Index), p.Local.Generation, pg.last)
	case or.w.plan.Leased && t.under != nil && t.under.loan.said: // On fenced ones the grant is gone, and finds it so.
		or.fail(checkReadEnded, "node %d reads under grant %d with transfer %d after it said that it has ended",
			n.it(), n.itsGrant(t.grant), oracle.Transfer(t.id))
	}
	if g := t.under; g != nil && or.w.script == nil {
		or.judged(checkReadLength)
		if at := g.place(p.Remote.Index); at >= 0 && g.pages[at].Length != p.Local.Length {
			or.fail(checkReadLength, "node %d reads %d bytes of page %d, more or fewer than its chunk has",
				n.it(), p.Local.Length, n.itsPage(p.Remote.Index))
		}
	}
	pg.last, pg.granted, pg.trusted, pg.fill = p.Local.Generation, 0, 0, fillOpen
	pg.writers++
	n.pool.touch(p.Local.Index)
}

// A fillState says what is known of the read that fills a page.
type fillState uint8

const (
	fillNone fillState = iota // no read does
	fillOpen                  // it has not ended well
	fillLate                  // it has, but nobody may believe it: its lease had ended
	fillWell
)

// fetched ends what a read may store, as its initiator is told so.
func (or *fillsOracle) fetched(t *transfer) {
	for _, p := range t.pairs {
		t.local.pages[p.Local.Index].writers--
		t.local.touch(p.Local.Index)
	}
}

// heardOf notes how a read ended, at the instant that its machine judges it by: the pages are
// what the owner's were only if its lease, by the owner's clock, still was in force.
func (or *fillsOracle) heardOf(t *transfer, code effects.Code) {
	if !t.read || code != effects.OK {
		return
	}
	state := fillWell
	if g := t.under; or.w.plan.Leased && (g == nil || or.w.clock(t.remote.node) > g.ends) {
		state = fillLate
	}
	for _, p := range t.pairs {
		if pg := &t.local.pages[p.Local.Index]; pg.last == p.Local.Generation {
			pg.fill = state
		}
	}
}

// believing checks a page that is taken for ready.
func (or *fillsOracle) believing(n *node, index uint32) {
	if n.pool.pages[index].fill != fillNone {
		or.judged(checkReadyRead, checkReadyInTime)
	}
	switch n.pool.pages[index].fill {
	case fillOpen:
		or.fail(checkReadyRead, "node %d takes page %d for ready although no read into it has ended well",
			n.it(), n.itsPage(index))
	case fillLate:
		or.fail(checkReadyInTime, "node %d takes page %d for ready although its read ended after its lease",
			n.it(), n.itsPage(index))
	case fillNone, fillWell:
	}
}

// reading checks half a page as it is loaded: where it goes must be the read's alone.
func (or *fillsOracle) reading(t *transfer, i int) {
	if !t.local.remains() {
		return // What a dead process's thread or device does, nobody sees.
	}
	p, n := t.pairs[i].Local, t.local.node
	pg := &t.local.pages[p.Index]
	or.judged(checkLoad, checkLoadScattered)
	switch {
	case !t.reading:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d after it was settled",
			oracle.Transfer(t.id), n.itsPage(p.Index), n.it())
	case pg.last != p.Generation:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.id), n.itsPage(p.Index), n.it(), pg.last, p.Generation)
	case pg.scatters > 0:
		or.fail(checkLoadScattered,
			"a store of transfer %d lands on page %d of node %d while its engine is handed what that holds",
			oracle.Transfer(t.id), n.itsPage(p.Index), n.it())
	case pg.pins > 0:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.id), n.itsPage(p.Index), n.it())
	}
}

// passed checks a page that a read on a fenced plane takes for good: it is what was lent, and
// its owner has not been told that it is its own again.
func (or *fillsOracle) passed(t *transfer, i int) {
	p, g := t.pairs[i], t.under
	owner := t.remote.node
	or.judged(checkPassLent, checkPassContent)
	if t.remote.alive() && g.loan.revoked {
		or.fail(checkPassLent, "a copy that transfer %d made of page %d of node %d passed after its grant was revoked",
			oracle.Transfer(t.id), owner.itsPage(p.Remote.Index), owner.it())
		return
	}
	at := g.place(p.Remote.Index)
	for part := range t.local.partsOf(p.Local.Length) {
		s, was := t.local.pages[p.Local.Index].stamps[part], g.loan.held[at]
		if s.key() != was.key() || s.fill() != was.fill() || s.part() != part {
			or.fail(checkPassContent,
				"a copy that transfer %d made of page %d of node %d passed, which holds key %d instead of %d",
				oracle.Transfer(t.id), owner.itsPage(p.Remote.Index), owner.it(), oracle.Key(s.key()), was.key())
			return
		}
	}
}

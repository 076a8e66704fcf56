package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The oracle of this file judges the pages that a read (pull) fills at the reader.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkReadScattered  = oracle.NewCheck("S15", "reads into staging pages")
	checkReadAlone      = oracle.NewCheck("S4", "reads into pages of nobody")
	checkReadGranted    = oracle.NewCheck("S3", "reads into pages not granted")
	checkReadGeneration = oracle.NewCheck("S2", "generations of pages read into")
	checkReadEnded      = oracle.NewCheck("S19", "reads before their end is told")
	checkReadLength     = oracle.NewCheck("S21", "lengths of reads")
	checkReadyRead      = oracle.NewCheck("S1", "ready pages that were read")
	checkReadyInTime    = oracle.NewCheck("S24", "ready pages read in time")
	checkLoad           = oracle.NewCheck("S3", "loads")
	checkLoadScattered  = oracle.NewCheck("S15", "loads into staging pages")
	checkPassLent       = oracle.NewCheck("S19", "copies that pass, of pages under a transfer")
	checkPassContent    = oracle.NewCheck("S1", "content of copies that pass")
)

// fillsOracle judges what reads store into the reader's pages.
type fillsOracle struct{ judge }

func (*fillsOracle) listen(l *oracle.Listen[fillsOracle]) {
	oracle.On(l, func(o *fillsOracle, _ *oracle.Call, e world.TransferDone) { o.heardOf(e.Transfer, e.Code) })
	oracle.On(l, func(o *fillsOracle, _ *oracle.Call, e world.Loaded) { o.reading(e.Transfer, e.Pair) })
	oracle.On(l, func(o *fillsOracle, _ *oracle.Call, e world.ReadPassed) { o.passed(e.Transfer, e.Pair) })
}

// fetching checks the local page of a Transfer that reads, when the machine emits the Transfer: the page is in a new
// generation, and must have no second user until the transfer is settled. Then the transfer is counted as a writer of
// the page.
func (or *fillsOracle) fetching(n *world.Node, t *world.Transfer, p effects.Pair) {
	pg := &n.Pool.Pages[p.Local.Index]
	or.judged(checkReadScattered, checkReadAlone, checkReadGranted, checkReadGeneration)
	if or.w.Setting.Leased && t.Under != nil {
		or.judged(checkReadEnded)
	}
	switch {
	case pg.Scatters > 0:
		or.fail(checkReadScattered, "node %d reads into page %d with transfer %d while its engine is handed what that holds",
			n.It(), n.ItsPage(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Writers > 0 || pg.Readers > 0:
		or.fail(checkReadAlone, "node %d reads into page %d with transfer %d while another may still touch it",
			n.It(), n.ItsPage(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Pins > 0 || pg.Reserved != 0 && !or.w.ForFlow(pg.Reserved):
		or.fail(checkReadAlone, "node %d reads into page %d with transfer %d while its engine has it",
			n.It(), n.ItsPage(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Granted != 0 && !or.w.Setting.Leased:
		or.fail(checkReadGranted, "node %d reads into page %d with transfer %d while it is granted under %d",
			n.It(), n.ItsPage(p.Local.Index), oracle.Transfer(t.ID), n.ItsGrant(pg.Granted))
	case p.Local.Generation != pg.Generation,
		!n.Staging(pg) && !or.w.ForFlow(pg.Reserved) && p.Local.Generation <= pg.Last:
		or.fail(checkReadGeneration, "node %d reads into page %d in generation %d after %d",
			n.It(), n.ItsPage(p.Local.Index), p.Local.Generation, pg.Last)
	case or.w.Setting.Leased && t.Under != nil && t.Under.Loan.Said: // On fenced planes the grant is gone, and the read fails.
		or.fail(checkReadEnded, "node %d reads under grant %d with transfer %d after it said that it has ended",
			n.It(), n.ItsGrant(t.Grant), oracle.Transfer(t.ID))
	}
	if g := t.Under; g != nil && or.w.Script == nil {
		or.judged(checkReadLength)
		if at := g.Place(p.Remote.Index); at >= 0 && g.Pages[at].Length != p.Local.Length {
			or.fail(checkReadLength, "node %d reads %d bytes of page %d, more or fewer than its chunk has",
				n.It(), p.Local.Length, n.ItsPage(p.Remote.Index))
		}
	}
	pg.Last, pg.Granted, pg.Trusted, pg.Fill = p.Local.Generation, 0, 0, world.FillOpen
	pg.Writers++
	n.Pool.Touch(p.Local.Index)
}

// fetched ends the stores of a read, when the initiator is notified that the read is settled.
func (or *fillsOracle) fetched(t *world.Transfer) {
	for _, p := range t.Pairs {
		t.Local.Pages[p.Local.Index].Writers--
		t.Local.Touch(p.Local.Index)
	}
}

// heardOf records how a read ended, at the instant by which the machine judges the read. The pages hold the owner's
// data for certain only if the lease was still in force by the owner's clock.
func (or *fillsOracle) heardOf(t *world.Transfer, code effects.Code) {
	if !t.Read || code != effects.OK {
		return
	}
	state := world.FillWell
	if g := t.Under; or.w.Setting.Leased && (g == nil || or.w.Clock(t.Remote.Node) > g.Ends) {
		state = world.FillLate
	}
	for _, p := range t.Pairs {
		if pg := &t.Local.Pages[p.Local.Index]; pg.Last == p.Local.Generation {
			pg.Fill = state
		}
	}
}

// believing checks a page that the machine takes for ready: a read into the page ended well (S1) and in time (S24).
func (or *fillsOracle) believing(n *world.Node, index uint32) {
	if n.Pool.Pages[index].Fill != world.FillNone {
		or.judged(checkReadyRead, checkReadyInTime)
	}
	switch n.Pool.Pages[index].Fill {
	case world.FillOpen:
		or.fail(checkReadyRead, "node %d takes page %d for ready although no read into it has ended well",
			n.It(), n.ItsPage(index))
	case world.FillLate:
		or.fail(checkReadyInTime, "node %d takes page %d for ready although its read ended after its lease",
			n.It(), n.ItsPage(index))
	case world.FillNone, world.FillWell:
	}
}

// reading checks half a page when that half is loaded: only the read may use the target page.
func (or *fillsOracle) reading(t *world.Transfer, i int) {
	if !t.Local.Remains() {
		return // No process sees what a thread or device of a dead process does.
	}
	p, n := t.Pairs[i].Local, t.Local.Node
	pg := &t.Local.Pages[p.Index]
	or.judged(checkLoad, checkLoadScattered)
	switch {
	case !t.Reading:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d after it was settled",
			oracle.Transfer(t.ID), n.ItsPage(p.Index), n.It())
	case pg.Last != p.Generation:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.ID), n.ItsPage(p.Index), n.It(), pg.Last, p.Generation)
	case pg.Scatters > 0:
		or.fail(checkLoadScattered,
			"a store of transfer %d lands on page %d of node %d while its engine is handed what that holds",
			oracle.Transfer(t.ID), n.ItsPage(p.Index), n.It())
	case pg.Pins > 0:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.ID), n.ItsPage(p.Index), n.It())
	}
}

// passed checks a page that a read on a fenced plane accepts: the page holds what was leased, and the owner has not
// been notified that the lease is revoked.
func (or *fillsOracle) passed(t *world.Transfer, i int) {
	p, g := t.Pairs[i], t.Under
	owner := t.Remote.Node
	or.judged(checkPassLent, checkPassContent)
	if t.Remote.Alive() && g.Loan.Revoked {
		or.fail(checkPassLent, "a copy that transfer %d made of page %d of node %d passed after its grant was revoked",
			oracle.Transfer(t.ID), owner.ItsPage(p.Remote.Index), owner.It())
		return
	}
	at := g.Place(p.Remote.Index)
	for part := range t.Local.PartsOf(p.Local.Length) {
		s, was := t.Local.Pages[p.Local.Index].Stamps[part], g.Loan.Held[at]
		if s.Key() != was.Key() || s.Fill() != was.Fill() || s.Part() != part {
			or.fail(checkPassContent,
				"a copy that transfer %d made of page %d of node %d passed, which holds key %d instead of %d",
				oracle.Transfer(t.ID), owner.ItsPage(p.Remote.Index), owner.It(), oracle.Key(s.Key()), was.Key())
			return
		}
	}
}

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
	checkReadUnused     = oracle.NewCheck("S4", "reads into unused pages")
	checkReadGranted    = oracle.NewCheck("S3", "reads into pages not granted")
	checkReadGeneration = oracle.NewCheck("S2", "generations of pages read into")
	checkReadEnded      = oracle.NewCheck("S19", "reads after the done message")
	checkReadLength     = oracle.NewCheck("S21", "lengths of reads")
	checkReadyRead      = oracle.NewCheck("S1", "ready pages that were read")
	checkReadyInTime    = oracle.NewCheck("S24", "ready pages read in time")
	checkLoad           = oracle.NewCheck("S3", "loads")
	checkLoadScattered  = oracle.NewCheck("S15", "loads into staging pages")
	checkPassedLease    = oracle.NewCheck("S19", "pages of copies that pass, under a lease")
	checkPassedContent  = oracle.NewCheck("S1", "content of copies that pass")
)

// readFillOracle judges what reads store into the reader's pages.
type readFillOracle struct{ oracleBase }

func (*readFillOracle) subscribe(l *oracle.Subscriptions[readFillOracle]) {
	oracle.On(l, func(o *readFillOracle, _ *oracle.Call, e world.TransferDone) {
		o.recordReadEnd(e.Transfer, e.Code, e.Ended)
	})
	oracle.On(l, func(o *readFillOracle, _ *oracle.Call, e world.PageLoaded) { o.verifyLoad(e.Transfer, e.Pair) })
	oracle.On(l, func(o *readFillOracle, _ *oracle.Call, e world.PageRead) { o.verifyPassed(e.Transfer, e.Pair) })
}

// verifyReadTarget checks the local page of a Transfer that reads, when the machine emits the Transfer: the page is in
// a new generation, and must have no second user until the transfer is settled. Then the transfer is counted as a
// writer of the page.
func (or *readFillOracle) verifyReadTarget(n *world.Node, t *world.Transfer, p effects.Pair) {
	pg := &n.Pool.Pages[p.Local.Index]
	or.countJudged(checkReadScattered, checkReadUnused, checkReadGranted, checkReadGeneration)
	if or.w.Conditions.Leased && t.Lease != nil {
		or.countJudged(checkReadEnded)
	}
	switch {
	case pg.Scatters > 0:
		or.fail(checkReadScattered, "node %d reads into page %d with transfer %d while the page is being scattered to the engine",
			n.AsSubject(), n.PageSubject(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Writers > 0 || pg.Readers > 0:
		or.fail(checkReadUnused, "node %d reads into page %d with transfer %d while another transfer may still access the page",
			n.AsSubject(), n.PageSubject(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Pins > 0 || pg.Reserved != 0 && !or.w.IsFlowReserve(pg.Reserved):
		or.fail(checkReadUnused, "node %d reads into page %d with transfer %d while the page belongs to the engine",
			n.AsSubject(), n.PageSubject(p.Local.Index), oracle.Transfer(t.ID))
	case pg.Granted != 0 && !or.w.Conditions.Leased:
		or.fail(checkReadGranted, "node %d reads into page %d with transfer %d while the page is granted under %d",
			n.AsSubject(), n.PageSubject(p.Local.Index), oracle.Transfer(t.ID), n.GrantSubject(pg.Granted))
	case p.Local.Generation != pg.Generation,
		!n.IsStaging(pg) && !or.w.IsFlowReserve(pg.Reserved) && p.Local.Generation <= pg.LastGeneration:
		or.fail(checkReadGeneration, "node %d reads into page %d in generation %d after %d",
			n.AsSubject(), n.PageSubject(p.Local.Index), p.Local.Generation, pg.LastGeneration)
	case or.w.Conditions.Leased && t.Lease != nil && t.Lease.Lease.DoneSent: // On fenced planes the grant is gone, and the read fails.
		or.fail(checkReadEnded, "node %d reads under grant %d with transfer %d after the done message for the grant",
			n.AsSubject(), n.GrantSubject(t.Grant), oracle.Transfer(t.ID))
	}
	if g := t.Lease; g != nil && or.w.Script == nil {
		or.countJudged(checkReadLength)
		if at := g.PageIndex(p.Remote.Index); at >= 0 && g.Pages[at].Length != p.Local.Length {
			or.fail(checkReadLength, "node %d reads %d bytes of page %d, which is not the length of the chunk",
				n.AsSubject(), p.Local.Length, n.PageSubject(p.Remote.Index))
		}
	}
	pg.LastGeneration, pg.Granted, pg.TrustedGrant, pg.FillState = p.Local.Generation, 0, 0, world.FillOpen
	pg.Writers++
	n.Pool.UpdateInUse(p.Local.Index)
}

// endRead ends the stores of a read, when the initiator is notified that the read is settled.
func (or *readFillOracle) endRead(t *world.Transfer) {
	for _, p := range t.Pairs {
		t.Local.Pages[p.Local.Index].Writers--
		t.Local.UpdateInUse(p.Local.Index)
	}
}

// recordReadEnd records how a read ended, at the instant by which the machine judges the read. The pages hold the
// owner's data for certain only if the lease was still in force by the owner's clock.
func (or *readFillOracle) recordReadEnd(t *world.Transfer, code effects.Code, ended int64) {
	if !t.Read || code != effects.OK {
		return
	}
	state := world.FillOK
	if g := t.Lease; or.w.Conditions.Leased && (g == nil || t.Remote.Node.ReadingAt(ended) > g.ExpiresAt) {
		state = world.FillLate
	}
	for _, p := range t.Pairs {
		if pg := &t.Local.Pages[p.Local.Index]; pg.LastGeneration == p.Local.Generation {
			pg.FillState = state
		}
	}
}

// verifyReady checks a page that the machine takes for ready: a read into the page ended well (S1) and in time (S24).
func (or *readFillOracle) verifyReady(n *world.Node, index uint32) {
	if n.Pool.Pages[index].FillState != world.FillNone {
		or.countJudged(checkReadyRead, checkReadyInTime)
	}
	switch n.Pool.Pages[index].FillState {
	case world.FillOpen:
		or.fail(checkReadyRead, "node %d treats page %d as ready although no read into the page has succeeded",
			n.AsSubject(), n.PageSubject(index))
	case world.FillLate:
		or.fail(checkReadyInTime, "node %d treats page %d as ready although the read ended after the lease",
			n.AsSubject(), n.PageSubject(index))
	case world.FillNone, world.FillOK:
	}
}

// verifyLoad checks half a page when that half is loaded: only the read may use the target page.
func (or *readFillOracle) verifyLoad(t *world.Transfer, i int) {
	if !t.Local.Exists() {
		return // No process sees what a thread or device of a dead process does.
	}
	p, n := t.Pairs[i].Local, t.Local.Node
	pg := &t.Local.Pages[p.Index]
	or.countJudged(checkLoad, checkLoadScattered)
	switch {
	case !t.LocalInUse:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d after it was settled",
			oracle.Transfer(t.ID), n.PageSubject(p.Index), n.AsSubject())
	case pg.LastGeneration != p.Generation:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.ID), n.PageSubject(p.Index), n.AsSubject(), pg.LastGeneration, p.Generation)
	case pg.Scatters > 0:
		or.fail(checkLoadScattered,
			"a store of transfer %d lands on page %d of node %d while the page is being scattered to the engine",
			oracle.Transfer(t.ID), n.PageSubject(p.Index), n.AsSubject())
	case pg.Pins > 0:
		or.fail(checkLoad, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.ID), n.PageSubject(p.Index), n.AsSubject())
	}
}

// verifyPassed checks a page that a read on a fenced plane accepts: the page holds what was leased, and the owner has
// not been notified that the lease is revoked.
func (or *readFillOracle) verifyPassed(t *world.Transfer, i int) {
	p, g := t.Pairs[i], t.Lease
	owner := t.Remote.Node
	or.countJudged(checkPassedLease, checkPassedContent)
	if t.Remote.IsAlive() && g.Lease.Revoked {
		or.fail(checkPassedLease, "a copy that transfer %d made of page %d of node %d passed after its grant was revoked",
			oracle.Transfer(t.ID), owner.PageSubject(p.Remote.Index), owner.AsSubject())
		return
	}
	at := g.PageIndex(p.Remote.Index)
	for part := range t.Local.PartCount(p.Local.Length) {
		s, leased := t.Local.Pages[p.Local.Index].Stamps[part], g.Lease.FirstStamps[at]
		if s.Key() != leased.Key() || s.Fill() != leased.Fill() || s.Part() != part {
			or.fail(checkPassedContent,
				"a copy that transfer %d made of page %d of node %d passed, which holds key %d instead of %d",
				oracle.Transfer(t.ID), owner.PageSubject(p.Remote.Index), owner.AsSubject(), oracle.Key(s.Key()), leased.Key())
			return
		}
	}
}

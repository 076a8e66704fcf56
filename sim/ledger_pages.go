package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkGrantID         = oracle.NewCheck("S12", "ids of grants")
	checkGrantNamed      = oracle.NewCheck("S25", "grants to somebody")
	checkGrantAlone      = oracle.NewCheck("S4", "granted pages of nobody")
	checkGrantOnce       = oracle.NewCheck("S5", "pages granted once")
	checkGrantGeneration = oracle.NewCheck("S2", "generations of granted pages")
	checkWords           = oracle.NewCheck("S3", "writers' words of their end")
	checkReadyPut        = oracle.NewCheck("S9", "ready chunks that were put")
	checkReadyWhole      = oracle.NewCheck("S1", "content of ready pages")
	checkStore           = oracle.NewCheck("S3", "stores")
	checkStoreLent       = oracle.NewCheck("S19", "pages stores read from")
	checkPassing         = oracle.NewCheck("S19", "copies that pass, of pushes")
)

// pagesOracle judges pages that others may write.
type pagesOracle struct{ judge }

// granting checks that pages which may be written from now on are nobody else's.
func (or *pagesOracle) granting(n *node, e *effects.Grant) {
	or.all().queue.at(n).grant = e.ID
	or.judged(checkGrantID, checkGrantNamed, checkGrantAlone, checkGrantOnce, checkGrantGeneration)
	if n.grants[e.ID] != nil {
		or.fail(checkGrantID, "node %d grants under id %d a second time", n.it(), e.ID)
		return
	}
	if e.Peer == (effects.Incarnation{}) && !or.w.plan.Leased && or.w.script == nil {
		or.fail(checkGrantNamed,
			"node %d grants %d pages under grant %d to somebody without an identity, whom no fenced plane lets write",
			n.it(), len(e.Pages), n.itsGrant(e.ID))
		return
	}
	if id, page := or.all().loans.lentTo(n, e.Pages); id != 0 {
		or.fail(checkGrantAlone, "node %d grants page %d under grant %d while grant %d lets it be read",
			n.it(), n.itsPage(page), n.itsGrant(e.ID), n.itsGrant(id))
		return
	}
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		switch {
		case pg.writers > 0:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while a transfer may still store into it",
				n.it(), n.itsPage(p.Index), n.itsGrant(e.ID))
		case pg.granted != 0 && !or.all().bearer.lapsed(n, pg.granted):
			or.fail(checkGrantOnce, "node %d grants page %d under grant %d while it is granted under %d",
				n.it(), n.itsPage(p.Index), n.itsGrant(e.ID), n.itsGrant(pg.granted))
		case pg.pins > 0 || pg.scatters > 0:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while the engine reads it",
				n.it(), n.itsPage(p.Index), n.itsGrant(e.ID))
		case pg.reserved != 0 && or.w.script == nil:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while its engine has it for ticket %d",
				n.it(), n.itsPage(p.Index), n.itsGrant(e.ID), oracle.Ticket(pg.reserved))
		case p.Generation <= pg.last:
			or.fail(checkGrantGeneration, "node %d grants page %d with generation %d after %d",
				n.it(), n.itsPage(p.Index), p.Generation, pg.last)
		}
		pg.granted, pg.since, pg.last, pg.trusted, pg.fill = e.ID, p.Generation, p.Generation, 0, fillNone
		if or.w.plan.Leased && or.w.plan.Rank.TrustUncommitted && e.Peer == (effects.Incarnation{}) {
			pg.trusted = e.ID
		}
		n.pool.touch(p.Index)
	}
	or.all().landed.crowds(n, e)
}

// revoked ends a grant, but for what landed.
func (or *pagesOracle) revoked(n *node, id effects.GrantID) {
	or.all().loans.revokedLoan(n, id)
	for i := range n.pool.pages {
		if pg := &n.pool.pages[i]; pg.granted == id {
			pg.granted = 0
			n.pool.touch(uint32(i))
		}
	}
}

// words reads what an initiator says of its grants as it arrives: on leased planes its
// word ends them. It must be true: nothing of theirs may still be under way.
func (or *pagesOracle) words(n *node) {
	m := &or.truth().request
	if !or.w.plan.Leased || !m.HasExt || len(m.Ext.Commit)+len(m.Ext.Abort) == 0 ||
		!n.believes(effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		return
	}
	for _, list := range [][]uint64{m.Ext.Commit, m.Ext.Abort} {
		for _, id := range list {
			g := n.grants[effects.GrantID(id)]
			if g == nil || protocol.UUID(g.peer) != m.Ext.Incarnation {
				continue
			}
			for _, p := range g.pages {
				pg := &n.pool.pages[p.Index]
				if pg.granted != g.id {
					continue
				}
				or.judged(checkWords)
				if pg.writers > 0 {
					or.fail(checkWords, "node %d is told that grant %d has ended while a store into page %d is under way",
						n.it(), n.itsGrant(effects.GrantID(id)), n.itsPage(p.Index))
					return
				}
				pg.granted = 0
				n.pool.touch(p.Index)
			}
		}
	}
}

// landed ends a fenced grant for the pages that are whole.
func (or *pagesOracle) landed(t *transfer) {
	for _, p := range t.landed {
		t.remote.pages[p.Index].granted = 0
		t.remote.touch(p.Index)
	}
}

// ready notes that a chunk became readable, if only for an instant, and looks at it
// where the machine says that it is: it must be whole.
func (or *pagesOracle) ready(n *node, hash uint64) {
	or.judged(checkReadyPut)
	k, ok := or.truth().named(n, hash)
	if !ok {
		or.fail(checkReadyPut, "node %d says that a chunk is ready that nobody put", n.it())
		return
	}
	or.truth().stored[n.id][k], or.all().hope.at(n).ready = true, true
	or.all().lapsed.at(n).arrived(k, or.w.now)
	p, ok := n.ready(or.truth().keys[k])
	if !ok {
		or.void(checkReadyWhole)
		return // Somebody who waited for its page had it in the same step.
	}
	or.judged(checkReadyWhole)
	or.all().fills.believing(n, p.Index)
	pg := &n.pool.pages[p.Index]
	pg.chunk = p.Generation
	for part := range n.pool.partsOf(p.Length) {
		if s := pg.stamps[part]; s.key() != k || s.part() != part || s.fill() != pg.stamps[0].fill() {
			or.fail(checkReadyWhole, "node %d takes page %d for ready although it is not whole", n.it(), n.itsPage(p.Index))
			return
		}
	}
}

// flying counts a store that hardware was given, unless its mapping is gone already.
func (or *pagesOracle) flying(t *transfer, pair int) {
	if g := t.remote.node.grants[t.grant]; t.remote.alive() && g != nil && g.gone {
		return
	}
	t.writing = append(t.writing, pair)
	page := t.pairs[pair].Remote.Index
	t.remote.pages[page].writers++
	t.remote.touch(page)
}

// flown ends it.
func (or *pagesOracle) flown(t *transfer, pair int) {
	if i := slices.Index(t.writing, pair); i >= 0 {
		t.writing = slices.Delete(t.writing, i, i+1)
		page := t.pairs[pair].Remote.Index
		t.remote.pages[page].writers--
		t.remote.touch(page)
	}
}

// unmapped: what is still under way can no longer reach the pages.
func (or *pagesOracle) unmapped(n *node, id effects.GrantID) {
	for i := range or.w.plainWrites {
		if x := &or.w.plainWrites[i]; x.pool == n.pool && x.grant == id {
			or.all().bearer.plainStill(x)
		}
	}
	for _, t := range or.w.going.transfers.some {
		if t.remote == n.pool && t.grant == id {
			for len(t.writing) > 0 {
				or.flown(t, t.writing[0])
			}
		}
	}
}

// storing checks one store at its instant: the page must be granted to that very
// transfer, nobody may be reading it, and what is read must still be lent.
func (or *pagesOracle) storing(t *transfer, i, half int) {
	p := t.pairs[i]
	dst, src := &t.remote.pages[p.Remote.Index], &t.local.pages[p.Local.Index]
	to := t.remote.node
	or.judged(checkStore, checkStoreLent)
	switch {
	case dst.granted != t.grant:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d, which is granted to %d instead of %d",
			oracle.Transfer(t.id), to.itsPage(p.Remote.Index), to.it(), dst.granted, t.grant)
	case p.Remote.Generation != 0 && dst.since != p.Remote.Generation:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.id), to.itsPage(p.Remote.Index), to.it(), dst.since, p.Remote.Generation)
	case dst.pins > 0 || dst.scatters > 0:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.id), to.itsPage(p.Remote.Index), to.it())
	case t.local.back && !t.early:
		or.fail(checkStoreLent, "transfer %d reads page %d of node %d, whose rank has failed, after it is its engine's again",
			oracle.Transfer(t.id), t.local.node.itsPage(p.Local.Index), t.local.node.it())
	case t.local.alive() && !t.reading && !t.early && !or.w.plan.Leased && half == 0:
		or.fail(checkStoreLent, "transfer %d reads page %d of node %d after it was settled",
			oracle.Transfer(t.id), t.local.node.itsPage(p.Local.Index), t.local.node.it())
	case t.local.alive() && t.reading && src.readers == 0:
		or.fail(checkStoreLent, "transfer %d reads page %d of node %d, which is not lent",
			oracle.Transfer(t.id), t.local.node.itsPage(p.Local.Index), t.local.node.it())
	}
}

// passing checks a copy on a fenced plane that its target takes for good: the page was lent until its last byte was read.
func (or *pagesOracle) passing(t *transfer, i int) {
	or.judged(checkPassing)
	if t.local.alive() && !t.reading {
		or.fail(checkPassing, "a copy that transfer %d made of page %d of node %d passed after it was settled",
			oracle.Transfer(t.id), t.local.node.itsPage(t.pairs[i].Local.Index), t.local.node.it())
	}
}

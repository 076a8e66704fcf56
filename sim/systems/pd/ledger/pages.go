package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGrantID         = oracle.NewCheck("S12", "ids of grants")
	checkGrantNamed      = oracle.NewCheck("S25", "grants to somebody")
	checkGrantAlone      = oracle.NewCheck("S4", "granted pages of nobody")
	checkGrantOnce       = oracle.NewCheck("S5", "pages granted once")
	checkGrantGeneration = oracle.NewCheck("S2", "generations of granted pages")
	checkWords           = oracle.NewCheck("S3", "writers' messages of their end")
	checkReadyPut        = oracle.NewCheck("S9", "ready chunks that were put")
	checkReadyWhole      = oracle.NewCheck("S1", "content of ready pages")
	checkStore           = oracle.NewCheck("S3", "stores")
	checkStoreLent       = oracle.NewCheck("S19", "pages stores read from")
	checkPassing         = oracle.NewCheck("S19", "copies that pass, of pushes")
)

// pagesOracle judges the pages that peers may write: a write grant covers only pages without a user (S4, S5), each
// store is made under the grant in force (S3), and a chunk that becomes ready is whole (S1). The oracle maintains the
// ledger's record of each page (world.Page), such as Granted, Writers and Last.
type pagesOracle struct{ judge }

func (*pagesOracle) listen(l *oracle.Listen[pagesOracle]) {
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Granting) { o.granting(e.Node, e.Effect) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Revoked) { o.revoked(e.Node, e.Grant) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Unmapped) { o.unmapped(e.Node, e.Grant) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Flying) { o.flying(e.Transfer, e.Pair) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Flown) { o.flown(e.Transfer, e.Pair) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Stored) { o.storing(e.Transfer, e.Pair, e.Half) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Passed) { o.passing(e.Transfer, e.Pair) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Landed) { o.landed(e.Transfer) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Carrying) { o.carried(e.Node, e.Effect) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Storing) { o.takes(e.Node, e.Effect) })
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e world.Observed) {
		if e.Effect.Fact == effects.FactReady {
			o.ready(e.Node, e.Effect.ID)
		}
	})
	oracle.On(l, func(o *pagesOracle, _ *oracle.Call, e pd.Stored) {
		for _, key := range e.Command.Body.(*engine.Store).Keys {
			o.ready(e.Node, pd.KeyHashOf(e.Node, key))
		}
	})
}

// granting checks a write grant when the machine emits the Grant effect: the grant id is new, and no engine, transfer,
// lease or grant uses the pages. Then the grant is recorded at the pages.
func (or *pagesOracle) granting(n *world.Node, e *effects.Grant) {
	or.all().queue.at(n).grant = e.ID
	or.judged(checkGrantID, checkGrantNamed, checkGrantAlone, checkGrantOnce, checkGrantGeneration)
	if n.Grants[e.ID] != nil {
		or.fail(checkGrantID, "node %d grants under id %d a second time", n.It(), e.ID)
		return
	}
	if e.Peer == (effects.Incarnation{}) && !or.w.Setting.Leased && or.w.Script == nil {
		or.fail(checkGrantNamed,
			"node %d grants %d pages under grant %d to somebody without an identity, whom no fenced plane lets write",
			n.It(), len(e.Pages), n.ItsGrant(e.ID))
		return
	}
	if id, page := or.all().loans.lentTo(n, e.Pages); id != 0 {
		or.fail(checkGrantAlone, "node %d grants page %d under grant %d while grant %d lets it be read",
			n.It(), n.ItsPage(page), n.ItsGrant(e.ID), n.ItsGrant(id))
		return
	}
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Writers > 0:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while a transfer may still store into it",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(e.ID))
		case pg.Granted != 0 && !or.all().bearer.lapsed(n, pg.Granted):
			or.fail(checkGrantOnce, "node %d grants page %d under grant %d while it is granted under %d",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(e.ID), n.ItsGrant(pg.Granted))
		case pg.Pins > 0 || pg.Scatters > 0:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while the engine reads it",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(e.ID))
		case pg.Reserved != 0 && or.w.Script == nil:
			or.fail(checkGrantAlone, "node %d grants page %d under grant %d while its engine has it for ticket %d",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(e.ID), oracle.Ticket(pg.Reserved))
		case p.Generation <= pg.Last:
			or.fail(checkGrantGeneration, "node %d grants page %d with generation %d after %d",
				n.It(), n.ItsPage(p.Index), p.Generation, pg.Last)
		}
		pg.Granted, pg.Since, pg.Last, pg.Trusted, pg.Fill = e.ID, p.Generation, p.Generation, 0, world.FillNone
		if or.w.Setting.Leased && or.w.Plan.Rank.TrustUncommitted && e.Peer == (effects.Incarnation{}) {
			pg.Trusted = e.ID
		}
		n.Pool.Touch(p.Index)
	}
}

// revoked ends a grant or a read lease. Pages that have landed no longer belong to the grant and do not change.
func (or *pagesOracle) revoked(n *world.Node, id effects.GrantID) {
	or.all().loans.revokedLoan(n, id)
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Granted == id {
			pg.Granted = 0
			n.Pool.Touch(uint32(i))
		}
	}
}

// words takes the commits and aborts in an allocation request as the request arrives. On leased planes the sender's
// commit or abort ends the grant. The message must be true: no store under the grant may still be in flight (S3).
func (or *pagesOracle) words(n *world.Node) {
	m := &or.truth().request.m
	if !or.w.Setting.Leased || !m.HasExt || len(m.Ext.Commit)+len(m.Ext.Abort) == 0 ||
		!pd.Believes(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		return
	}
	for _, list := range [][]uint64{m.Ext.Commit, m.Ext.Abort} {
		for _, id := range list {
			g := n.Grants[effects.GrantID(id)]
			if g == nil || protocol.UUID(g.Peer) != m.Ext.Incarnation {
				continue
			}
			for _, p := range g.Pages {
				pg := &n.Pool.Pages[p.Index]
				if pg.Granted != g.ID {
					continue
				}
				or.judged(checkWords)
				if pg.Writers > 0 {
					or.fail(checkWords, "node %d is told that grant %d has ended while a store into page %d is under way",
						n.It(), n.ItsGrant(effects.GrantID(id)), n.ItsPage(p.Index))
					return
				}
				pg.Granted = 0
				n.Pool.Touch(p.Index)
			}
		}
	}
}

// landed ends a fenced grant for the pages that are whole.
func (or *pagesOracle) landed(t *world.Transfer) {
	for _, p := range t.Landed {
		t.Remote.Pages[p.Index].Granted = 0
		t.Remote.Touch(p.Index)
	}
}

// ready records that a chunk became readable, possibly only within this step, and checks the page in which the machine
// has the chunk: the page must be whole.
func (or *pagesOracle) ready(n *world.Node, hash uint64) {
	or.judged(checkReadyPut)
	k, ok := or.truth().named(n, hash)
	if !ok {
		or.fail(checkReadyPut, "node %d says that a chunk is ready that nobody put", n.It())
		return
	}
	or.all().lapsed.at(n).arrived(k, or.w.Now)
	if _, layers := or.w.Plan.Layer(k); layers > 0 { // All layers of a chunk become readable at once.
		for layer := range layers {
			or.readyPage(n, k+layer)
		}
		return
	}
	or.readyPage(n, k)
}

// readyPage checks a page of a chunk that became readable: all parts hold the same fill of the key k (S1).
func (or *pagesOracle) readyPage(n *world.Node, k uint32) {
	or.truth().stored[n.ID][k], or.all().hope.at(n).ready = true, true
	p, ok := pd.ReadyAt(n, or.w.Keys[k])
	if !ok {
		or.void(checkReadyWhole)
		return // The machine gave the page to a waiting request in the same step.
	}
	or.judged(checkReadyWhole)
	or.all().fills.believing(n, p.Index)
	pg := &n.Pool.Pages[p.Index]
	pg.Chunk = p.Generation
	for part := range n.Pool.PartsOf(p.Length) {
		if s := pg.Stamps[part]; s.Key() != k || s.Part() != part || s.Fill() != pg.Stamps[0].Fill() {
			or.fail(checkReadyWhole, "node %d takes page %d for ready although it is not whole", n.It(), n.ItsPage(p.Index))
			return
		}
	}
}

// flying counts a store that was submitted to hardware, unless the mapping of the grant is gone already.
func (or *pagesOracle) flying(t *world.Transfer, pair int) {
	if g := t.Remote.Node.Grants[t.Grant]; t.Remote.Alive() && g != nil && g.Gone {
		return
	}
	t.Writing = append(t.Writing, pair)
	page := t.Pairs[pair].Remote.Index
	t.Remote.Pages[page].Writers++
	t.Remote.Touch(page)
}

// flown ends a store that flying has counted.
func (or *pagesOracle) flown(t *world.Transfer, pair int) {
	if i := slices.Index(t.Writing, pair); i >= 0 {
		t.Writing = slices.Delete(t.Writing, i, i+1)
		page := t.Pairs[pair].Remote.Index
		t.Remote.Pages[page].Writers--
		t.Remote.Touch(page)
	}
}

// unmapped ends the stores under a grant when the mapping of the grant is gone: stores in flight can no longer reach
// the pages.
func (or *pagesOracle) unmapped(n *world.Node, id effects.GrantID) {
	for i := range or.w.PlainWrites {
		if x := &or.w.PlainWrites[i]; x.Pool == n.Pool && x.Grant == id {
			or.all().bearer.plainStill(x)
		}
	}
	for _, t := range or.w.Going.Transfers.Some {
		if t.Remote == n.Pool && t.Grant == id {
			for len(t.Writing) > 0 {
				or.flown(t, t.Writing[0])
			}
		}
	}
}

// storing checks a store at the instant when the store lands: the page must be granted to this transfer in this
// generation, the engine must not be reading it (S3), and the page that the store reads from must still be lent to the
// transfer (S19).
func (or *pagesOracle) storing(t *world.Transfer, i, half int) {
	p := t.Pairs[i]
	dst := &t.Remote.Pages[p.Remote.Index]
	to := t.Remote.Node
	or.judged(checkStore, checkStoreLent)
	switch {
	case dst.Granted != t.Grant:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d, which is granted to %d instead of %d",
			oracle.Transfer(t.ID), to.ItsPage(p.Remote.Index), to.It(), dst.Granted, t.Grant)
	case p.Remote.Generation != 0 && dst.Since != p.Remote.Generation:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.ID), to.ItsPage(p.Remote.Index), to.It(), dst.Since, p.Remote.Generation)
	case dst.Pins > 0 || dst.Scatters > 0:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.ID), to.ItsPage(p.Remote.Index), to.It())
	case t.Local.Back && !t.Early:
		or.fail(checkStoreLent, "transfer %d reads page %d of node %d, whose rank has failed, after it is its engine's again",
			oracle.Transfer(t.ID), t.Local.Node.ItsPage(p.Local.Index), t.Local.Node.It())
	case t.Local.Alive() && !t.Reading && !t.Early && !or.w.Setting.Leased && half == 0:
		or.fail(checkStoreLent, "transfer %d reads page %d of node %d after it was settled",
			oracle.Transfer(t.ID), t.Local.Node.ItsPage(p.Local.Index), t.Local.Node.It())
	case t.Local.Alive() && t.Reading:
		for _, local := range t.Sources(i) {
			if t.Local.Pages[local.Index].Readers == 0 {
				or.fail(checkStoreLent, "transfer %d reads page %d of node %d, which is not leased",
					oracle.Transfer(t.ID), t.Local.Node.ItsPage(local.Index), t.Local.Node.It())
				return
			}
		}
	}
}

// passing checks a copy on a fenced plane that the receiver accepts: the source page was lent until the last byte was
// read (S19).
func (or *pagesOracle) passing(t *world.Transfer, i int) {
	or.judged(checkPassing)
	if t.Local.Alive() && !t.Reading {
		or.fail(checkPassing, "a copy that transfer %d made of page %d of node %d passed after it was settled",
			oracle.Transfer(t.ID), t.Local.Node.ItsPage(t.Pairs[i].Local.Index), t.Local.Node.It())
	}
}

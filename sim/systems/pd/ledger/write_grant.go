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
	checkGrantNamed      = oracle.NewCheck("S25", "grants to peers with an identity")
	checkGrantUnused     = oracle.NewCheck("S4", "granted pages without a user")
	checkGrantOnce       = oracle.NewCheck("S5", "pages granted once")
	checkGrantGeneration = oracle.NewCheck("S2", "generations of granted pages")
	checkWriterDone      = oracle.NewCheck("S3", "commits and aborts of writers")
	checkReadyPut        = oracle.NewCheck("S9", "ready chunks that were put")
	checkReadyWhole      = oracle.NewCheck("S1", "content of ready pages")
	checkStore           = oracle.NewCheck("S3", "stores")
	checkStoreSource     = oracle.NewCheck("S19", "source pages of stores")
	checkPassedPush      = oracle.NewCheck("S19", "copies that pass, of pushes")
)

// writeGrantOracle judges the pages that peers may write: a write grant covers only pages without a user (S4, S5), each
// store is made under the grant in force (S3), and a chunk that becomes ready is whole (S1). The oracle maintains the
// ledger's record of each page (world.Page), such as Granted, Writers and Last.
type writeGrantOracle struct{ oracleBase }

func (*writeGrantOracle) subscribe(l *oracle.Subscriptions[writeGrantOracle]) {
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.GrantingPages) { o.verifyGrant(e.Node, e.Effect) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.GrantRevoked) { o.endGrant(e.Node, e.Grant) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.GrantUnmapped) { o.endUnmapped(e.Node, e.Grant) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.StoreInFlight) { o.countStore(e.Transfer, e.Pair) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.StoreFinished) { o.endStore(e.Transfer, e.Pair) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.HalfStored) {
		o.verifyStore(e.Transfer, e.Pair, e.Half)
	})
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.PageCopied) { o.verifyPassed(e.Transfer, e.Pair) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.TransferLanded) { o.endLandedPages(e.Transfer) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.SendingPages) { o.verifyCarried(e.Node, e.Effect) })
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.StoringCarried) {
		o.verifyCarriedTarget(e.Node, e.Effect)
	})
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactReady {
			o.recordReady(e.Node, e.Effect.ID)
		}
	})
	oracle.On(l, func(o *writeGrantOracle, _ *oracle.Call, e pd.PagesStored) {
		for _, key := range e.Command.Body.(*engine.Store).Keys {
			o.recordReady(e.Node, pd.KeyHashOf(e.Node, key))
		}
	})
}

// verifyGrant checks a write grant when the machine emits the Grant effect: the grant id is new, and no engine,
// transfer, lease or grant uses the pages. Then the grant is recorded at the pages.
func (or *writeGrantOracle) verifyGrant(n *world.Node, e *effects.Grant) {
	or.oracles().queue.stateOf(n).newGrant = e.ID
	or.countJudged(checkGrantID, checkGrantNamed, checkGrantUnused, checkGrantOnce, checkGrantGeneration)
	if n.Grants[e.ID] != nil {
		or.fail(checkGrantID, "node %d grants under id %d a second time", n.AsSubject(), e.ID)
		return
	}
	if e.Peer == (effects.Incarnation{}) && !or.w.Conditions.Leased && or.w.Script == nil {
		or.fail(checkGrantNamed,
			"node %d grants %d pages under grant %d to a peer without an identity, which cannot write on a fenced plane",
			n.AsSubject(), len(e.Pages), n.GrantSubject(e.ID))
		return
	}
	if id, page := or.oracles().readLeases.findLease(n, e.Pages); id != 0 {
		or.fail(checkGrantUnused, "node %d grants page %d under grant %d while the page may be read under grant %d",
			n.AsSubject(), n.PageSubject(page), n.GrantSubject(e.ID), n.GrantSubject(id))
		return
	}
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case pg.Writers > 0:
			or.fail(checkGrantUnused, "node %d grants page %d under grant %d while a transfer may still store into it",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(e.ID))
		case pg.Granted != 0 && !or.oracles().plainSenders.isExpired(n, pg.Granted):
			or.fail(checkGrantOnce, "node %d grants page %d under grant %d while it is granted under %d",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(e.ID), n.GrantSubject(pg.Granted))
		case pg.Pins > 0 || pg.Scatters > 0:
			or.fail(checkGrantUnused, "node %d grants page %d under grant %d while the engine reads it",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(e.ID))
		case pg.Verifies > 0:
			or.fail(checkGrantUnused, "node %d grants page %d under grant %d while the page is compared with a checksum",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(e.ID))
		case pg.Reserved != 0 && or.w.Script == nil:
			or.fail(checkGrantUnused, "node %d grants page %d under grant %d while the engine has reserved the page with ticket %d",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(e.ID), oracle.Ticket(pg.Reserved))
		case p.Generation <= pg.LastGeneration:
			or.fail(checkGrantGeneration, "node %d grants page %d with generation %d after %d",
				n.AsSubject(), n.PageSubject(p.Index), p.Generation, pg.LastGeneration)
		}
		pg.Granted, pg.GrantGeneration, pg.LastGeneration, pg.TrustedGrant, pg.FillState = e.ID, p.Generation, p.Generation, 0, world.FillNone
		if or.w.Conditions.Leased && or.w.Setup.Rank.TrustUncommitted && e.Peer == (effects.Incarnation{}) {
			pg.TrustedGrant = e.ID
		}
		n.Pool.UpdateInUse(p.Index)
	}
}

// endGrant ends a grant or a read lease. Pages that have landed no longer belong to the grant and do not change.
func (or *writeGrantOracle) endGrant(n *world.Node, id effects.GrantID) {
	or.oracles().readLeases.recordRevoked(n, id)
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Granted == id {
			pg.Granted = 0
			n.Pool.UpdateInUse(uint32(i))
		}
	}
}

// handleWriterDone takes the commits and aborts in an allocation request as the request arrives. On leased planes the
// sender's commit or abort ends the grant. The message must be true: no store under the grant may still be in flight
// (S3).
func (or *writeGrantOracle) handleWriterDone(n *world.Node) {
	m := &or.facts().request.message
	if !or.w.Conditions.Leased || !m.HasExt || len(m.Ext.Commit)+len(m.Ext.Abort) == 0 ||
		!pd.IsGenuine(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		return
	}
	for i, list := range [][]uint64{m.Ext.Commit, m.Ext.Abort} {
		for _, id := range list {
			g := n.Grants[effects.GrantID(id)]
			if g == nil || protocol.UUID(g.Peer) != m.Ext.Incarnation {
				continue
			}
			if i == 0 && g.CommitArrivedAt == 0 && !g.Revoking {
				g.CommitArrivedAt = or.w.ReadClock(n)
			}
			if i == 1 {
				or.oracles().metrics.recordAborted(n, g.ID)
			}
			for _, p := range g.Pages {
				pg := &n.Pool.Pages[p.Index]
				if pg.Granted != g.ID {
					continue
				}
				or.countJudged(checkWriterDone)
				if pg.Writers > 0 {
					or.fail(checkWriterDone, "node %d receives the end of grant %d while a store into page %d is in flight",
						n.AsSubject(), n.GrantSubject(effects.GrantID(id)), n.PageSubject(p.Index))
					return
				}
				pg.Granted = 0
				n.Pool.UpdateInUse(p.Index)
			}
		}
	}
}

// endLandedPages ends a fenced grant for the pages that are whole.
func (or *writeGrantOracle) endLandedPages(t *world.Transfer) {
	for _, p := range t.Landed {
		t.Remote.Pages[p.Index].Granted = 0
		t.Remote.UpdateInUse(p.Index)
	}
}

// recordReady records that a chunk became readable, possibly only within this step, and checks the page in which the
// machine has the chunk: the page must be whole.
func (or *writeGrantOracle) recordReady(n *world.Node, hash uint64) {
	k, ok := or.facts().keyOfHash(n, hash)
	if !ok && or.w.SourcePlan.Topology.Domains { // A false chunk of a stranger, whose hash is that of its domain.
		or.countVoid(checkReadyPut)
		or.oracles().lapses.stateOf(n).recordForeign(hash, or.w.Now)
		return
	}
	if or.countJudged(checkReadyPut); !ok {
		or.fail(checkReadyPut, "node %d reports that a chunk is ready that was never put", n.AsSubject())
		return
	}
	or.oracles().lapses.stateOf(n).recordWhole(k, or.w.Now)
	if _, layers := or.w.Setup.ChunkOf(k); layers > 0 { // All layers of a chunk become readable at once.
		for layer := range layers {
			or.verifyReadyPage(n, k+layer)
		}
		return
	}
	or.verifyReadyPage(n, k)
}

// verifyReadyPage checks a page of a chunk that became readable: all parts hold the same fill of the key k (S1).
func (or *writeGrantOracle) verifyReadyPage(n *world.Node, k uint32) {
	or.facts().wholeKeys[n.ID][k], or.oracles().getWaits.stateOf(n).chunkReady = true, true
	p, ok := pd.ReadyAt(n, or.w.Keys[k])
	if !ok {
		or.countVoid(checkReadyWhole)
		return // The machine gave the page to a waiting request in the same step.
	}
	if or.oracles().domains.verifyReady(n, p.Index); or.w.Failure != nil {
		return
	}
	or.oracles().readFills.verifyReady(n, p.Index)
	pg := &n.Pool.Pages[p.Index]
	pg.ChunkGeneration = p.Generation
	if pg.WasFlippedIn(p.Generation) { // A bit changed at rest, which no machine sees; the chunk was ready before.
		or.countVoid(checkReadyWhole)
		return
	}
	or.countJudged(checkReadyWhole)
	for part := range n.Pool.PartCount(p.Length) {
		if s := pg.Stamps[part]; s.Key() != k || s.Part() != part || s.Fill() != pg.Stamps[0].Fill() {
			or.fail(checkReadyWhole, "node %d treats page %d as ready although the page is not whole", n.AsSubject(), n.PageSubject(p.Index))
			return
		}
	}
}

// countStore counts a store that was submitted to hardware, unless the mapping of the grant is gone already.
func (or *writeGrantOracle) countStore(t *world.Transfer, pair int) {
	if g := t.Remote.Node.Grants[t.Grant]; t.Remote.IsAlive() && g != nil && g.Revoked {
		return
	}
	t.StoresLeft = append(t.StoresLeft, pair)
	page := t.Pairs[pair].Remote.Index
	t.Remote.Pages[page].Writers++
	t.Remote.UpdateInUse(page)
}

// endStore ends a store that flying has counted.
func (or *writeGrantOracle) endStore(t *world.Transfer, pair int) {
	if i := slices.Index(t.StoresLeft, pair); i >= 0 {
		t.StoresLeft = slices.Delete(t.StoresLeft, i, i+1)
		page := t.Pairs[pair].Remote.Index
		t.Remote.Pages[page].Writers--
		t.Remote.UpdateInUse(page)
	}
}

// endUnmapped ends the stores under a grant when the mapping of the grant is gone: stores in flight can no longer reach
// the pages.
func (or *writeGrantOracle) endUnmapped(n *world.Node, id effects.GrantID) {
	for i := range or.w.PlainWrites {
		if x := &or.w.PlainWrites[i]; x.Pool == n.Pool && x.Grant == id {
			or.oracles().plainSenders.endStore(x)
		}
	}
	for _, t := range or.w.Active.Transfers.Items {
		if t.Remote == n.Pool && t.Grant == id {
			for len(t.StoresLeft) > 0 {
				or.endStore(t, t.StoresLeft[0])
			}
		}
	}
}

// verifyStore checks a store at the instant when the store lands: the page must be granted to this transfer in this
// generation, the engine must not be reading it (S3), and the page that the store reads from must still be lent to the
// transfer (S19).
func (or *writeGrantOracle) verifyStore(t *world.Transfer, i, half int) {
	p := t.Pairs[i]
	dst := &t.Remote.Pages[p.Remote.Index]
	to := t.Remote.Node
	or.countJudged(checkStore, checkStoreSource)
	switch {
	case dst.Granted != t.Grant:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d, which is granted to %d instead of %d",
			oracle.Transfer(t.ID), to.PageSubject(p.Remote.Index), to.AsSubject(), dst.Granted, t.Grant)
	case p.Remote.Generation != 0 && dst.GrantGeneration != p.Remote.Generation:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d in generation %d instead of %d",
			oracle.Transfer(t.ID), to.PageSubject(p.Remote.Index), to.AsSubject(), dst.GrantGeneration, p.Remote.Generation)
	case dst.Pins > 0 || dst.Scatters > 0:
		or.fail(checkStore, "a store of transfer %d lands on page %d of node %d while its engine reads it",
			oracle.Transfer(t.ID), to.PageSubject(p.Remote.Index), to.AsSubject())
	case t.Local.Returned && !t.SettledEarly:
		or.fail(checkStoreSource, "transfer %d reads page %d of node %d, whose rank has failed, after the page was returned to the engine",
			oracle.Transfer(t.ID), t.Local.Node.PageSubject(p.Local.Index), t.Local.Node.AsSubject())
	case t.Local.IsAlive() && !t.LocalInUse && !t.SettledEarly && !or.w.Conditions.Leased && half == 0:
		or.fail(checkStoreSource, "transfer %d reads page %d of node %d after it was settled",
			oracle.Transfer(t.ID), t.Local.Node.PageSubject(p.Local.Index), t.Local.Node.AsSubject())
	case t.Local.IsAlive() && t.LocalInUse:
		for _, local := range t.Sources(i) {
			if t.Local.Pages[local.Index].Readers == 0 {
				or.fail(checkStoreSource, "transfer %d reads page %d of node %d, which is not leased",
					oracle.Transfer(t.ID), t.Local.Node.PageSubject(local.Index), t.Local.Node.AsSubject())
				return
			}
		}
	}
}

// verifyPassed checks a copy on a fenced plane that the receiver accepts: the source page was lent until the last byte
// was read (S19).
func (or *writeGrantOracle) verifyPassed(t *world.Transfer, i int) {
	or.countJudged(checkPassedPush)
	if t.Local.IsAlive() && !t.LocalInUse {
		or.fail(checkPassedPush, "a copy that transfer %d made of page %d of node %d passed after it was settled",
			oracle.Transfer(t.ID), t.Local.Node.PageSubject(t.Pairs[i].Local.Index), t.Local.Node.AsSubject())
	}
}

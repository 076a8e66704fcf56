package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A receiver that is a cache has each chunk that ever became ready in this incarnation, except for the chunks that the
// receiver reported as evicted. The receiver must not evict a chunk that is being read or that is promised to a
// request, and may evict a chunk only if the receiver then uses the page. A chunk whose layers have pages of their own
// is recorded by the key of its first layer.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkEvicted           = oracle.NewCheck("S5", "evicted chunks")
	checkEvictedRead       = oracle.NewCheck("S4", "evictions of chunks that are being read")
	checkEvictedPromised   = oracle.NewCheck("S9", "evictions of chunks that are promised")
	checkEvictedNeedlessly = oracle.NewCheck("L2", "evictions without need")
	checkCacheFound        = oracle.NewCheck("S2", "gets of chunks that a cache evicted")
	checkCacheMissed       = oracle.NewCheck("S9", "gets of chunks that a cache has")
	checkCachePages        = oracle.NewCheck("S5", "pages of a cache")
)

// cacheOracle judges receivers that are caches.
type cacheOracle struct {
	oracleBase
	perIncarnation[cacheState]
}

func (*cacheOracle) subscribe(l *oracle.Subscriptions[cacheOracle]) {
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.PublishingPages) { o.recordUsed(e.Node, e.Pages) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.GrantingPages) { o.recordUsed(e.Node, e.Effect.Pages) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e pd.GetOutcome) { o.verifyGet(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e pd.PagesStored) {
		for _, key := range e.Command.Body.(*engine.Store).Keys {
			o.recordReady(e.Node, pd.KeyHashOf(e.Node, key))
		}
	})
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.FactObserved) {
		switch e.Effect.Fact {
		case effects.FactReady:
			o.recordReady(e.Node, e.Effect.ID)
		case effects.FactEvicted:
			o.verifyEviction(e.Node, e.Effect.ID)
		case effects.FactReclaimed:
			o.recordReclaimed(e.Node, e.Effect.Count)
		case effects.FactFillLost: // The pages of the layers that landed come back too, and those that were promised.
			if k, ok := o.facts().keyOfHash(e.Node, e.Effect.ID); ok && o.pagesOf(k) > 1 {
				o.recordReclaimed(e.Node, uint32(o.pagesOf(k)))
			}
		}
	})
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e stepCounted) {
		if e.node.IsCache {
			o.afterStep(e.node, e.stats)
		}
	})
}

// cacheState records the chunks of an incarnation of a node that is a cache.
type cacheState struct {
	present      map[uint32]bool   // the chunks that the cache has, by key of the chunk or of its first layer
	foreign      map[uint64]bool   // the chunks of strangers of other trust domains that the cache has, by hash; a page each
	sharedPages  map[uint32]uint32 // pages that the engine shares: key number plus one; these chunks leave without a report
	foreignReady int               // such chunks that became ready in this step
	evictedCount int               // in this step
	evictedPages int               // pages of the chunk that was evicted last
	usedPages    int               // pages that were granted, promised to the layers of a chunk, or read into, in this step
	freedPages   int               // pages that were freed in this step after the newest eviction
}

func (q *cacheState) clearForReuse() {
	*q = cacheState{present: world.RecycleMap(q.present), foreign: world.RecycleMap(q.foreign),
		sharedPages: world.RecycleMap(q.sharedPages)}
}

// reportsEvictions reports whether a node reports all evictions. A node does not report chunks of trusted senders
// (TrustUncommitted).
func reportsEvictions(n *world.Node) bool { return n.IsCache && !pd.InfoOf(n).Cfg.TrustUncommitted }

// recordReady records that a chunk is ready.
func (or *cacheOracle) recordReady(n *world.Node, hash uint64) {
	k, ok := or.facts().keyOfHash(n, hash)
	if !ok && or.w.SourcePlan.Topology.Domains {
		or.stateOf(n).recordForeign(hash)
	}
	if !ok || !reportsEvictions(n) {
		return
	}
	if p, isReady := pd.ReadyAt(n, or.w.Keys[k]); isReady && or.stateOf(n).sharedPages[p.Index] == k+1 {
		return // The chunk leaves when the engine withdraws the page.
	}
	if or.stateOf(n).present == nil {
		or.stateOf(n).present = map[uint32]bool{}
	}
	or.stateOf(n).present[k] = true
}

// recordForeign records that a chunk of a stranger of another trust domain is ready.
func (q *cacheState) recordForeign(hash uint64) {
	if q.foreign == nil {
		q.foreign = map[uint64]bool{}
	}
	q.foreign[hash], q.foreignReady = true, q.foreignReady+1
}

// recordShared records a page that an engine shares, until the engine withdraws the page.
func (or *cacheOracle) recordShared(n *world.Node, page uint32, hash uint64) {
	if k, ok := or.facts().keyOfHash(n, hash); ok {
		if or.stateOf(n).sharedPages == nil {
			or.stateOf(n).sharedPages = map[uint32]uint32{}
		}
		or.stateOf(n).sharedPages[page] = k + 1
	}
}

// removeShared records that an engine has withdrawn a shared page.
func (or *cacheOracle) removeShared(n *world.Node, page uint32) {
	delete(or.stateOf(n).sharedPages, page)
}

// recordUsed records pages that something will be stored into.
func (or *cacheOracle) recordUsed(n *world.Node, pages []effects.Page) {
	if n.IsCache && (n.ArenaPages == 0 || !n.InArena(pages[0].Index)) {
		or.stateOf(n).usedPages += len(pages)
	}
}

// recordPromised records pages for layers that are granted or promised to a request.
func (or *cacheOracle) recordPromised(n *world.Node, pages int) {
	if n.IsCache {
		or.stateOf(n).usedPages += pages
	}
}

// verifyEviction checks a chunk that is evicted: the chunk was present, no engine or peer reads the chunk, and the
// chunk is promised to no request.
func (or *cacheOracle) verifyEviction(n *world.Node, hash uint64) {
	q := or.stateOf(n)
	k, ok := or.facts().keyOfHash(n, hash)
	q.evictedCount, q.evictedPages, q.freedPages = q.evictedCount+1, or.pagesOf(k), 0
	if !reportsEvictions(n) {
		or.countVoid(checkEvicted)
		return
	}
	if or.countJudged(checkEvicted); q.foreign[hash] {
		delete(q.foreign, hash)
		return
	}
	or.countJudged(checkEvictedRead)
	if !ok || !q.present[k] {
		or.fail(checkEvicted, "node %d evicts a chunk that the node does not have", n.AsSubject())
		return
	}
	delete(q.present, k)
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Pins > 0 && or.firstOf(pg.Stamps[0].Key()) == k && q.sharedPages[uint32(i)] == 0 {
			or.fail(checkEvictedRead, "node %d evicts chunk %d while the engine reads the chunk from page %d",
				n.AsSubject(), oracle.Key(k), n.PageSubject(uint32(i)))
			return
		}
	}
	if n.ArenaPages > 0 {
		or.oracles().arena.verifyEviction(n, k)
	}
	for job := range or.w.Jobs {
		if or.isPromised(n, job, k) {
			or.fail(checkEvictedPromised, "node %d evicts chunk %d, which is promised to request %q",
				n.AsSubject(), oracle.Key(k), oracle.Request(or.w.Jobs[job].Name))
			return
		}
	}
}

// firstOf returns the key by which the chunk of a key is recorded.
func (or *cacheOracle) firstOf(k uint32) uint32 {
	first, _ := or.w.Setup.ChunkOf(k)
	return first
}

// pagesOf returns the number of pages of the chunk with a key.
func (or *cacheOracle) pagesOf(k uint32) int {
	_, layers := or.w.Setup.ChunkOf(k)
	return max(1, int(layers))
}

// recordReclaimed records pages that came back from a grant. Example: a node that was frozen makes room for the first
// request in the mailbox, and then finds in the same step that grants expired meanwhile.
func (or *cacheOracle) recordReclaimed(n *world.Node, pages uint32) {
	or.stateOf(n).freedPages += int(pages)
}

// isPromised reports whether a chunk is certainly promised to a request at this instant, and the request has not read
// the chunk yet.
func (or *cacheOracle) isPromised(n *world.Node, job int, k uint32) bool {
	j := &or.w.Jobs[job]
	if j.Receiver != n.ID || j.PlainTo || n.Draining || n.Leaving || j.CommandCounts[plan.CommandAbandon] > 0 {
		return false // The reader is at another node or has read the chunk.
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		if !or.oracles().claims.isPromised(n, b) || or.oracles().claims.mayHaveEnded(n, job) {
			continue
		}
		if or.countJudged(checkEvictedPromised); slices.Contains(j.KeyNumbers[b.From:b.To], k) {
			return true
		}
	}
	return false
}

// verifyGet checks which chunks a Get finds in a cache.
func (or *cacheOracle) verifyGet(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !reportsEvictions(n) || n.Draining || n.Leaving {
		return
	}
	j, q := &or.w.Jobs[c.Job], or.stateOf(n)
	for i := range e.Pages {
		if or.countJudged(checkCacheFound); !q.present[or.firstOf(j.KeyNumbers[i])] && q.sharedPages[e.Pages[i].Index] != j.KeyNumbers[i]+1 {
			or.fail(checkCacheFound, "node %d delivers chunk %d of request %q, which the node has evicted",
				n.AsSubject(), oracle.Key(j.KeyNumbers[i]), oracle.Request(j.Name))
			return
		}
	}
	if !isMissCode(e.Code) || j.KeysIn(e.Hits) >= len(j.KeyNumbers) {
		return
	}
	if or.countJudged(checkCacheMissed); q.present[or.firstOf(j.KeyNumbers[j.KeysIn(e.Hits)])] {
		or.fail(checkCacheMissed, "node %d does not find chunk %d of request %q, which the node has not evicted",
			n.AsSubject(), oracle.Key(j.KeyNumbers[j.KeysIn(e.Hits)]), oracle.Request(j.Name))
	}
}

// afterStep checks that a step evicted no more chunks than the number of pages that the step used, and evicted nothing
// while there was room.
func (or *cacheOracle) afterStep(n *world.Node, s *rank.Stats) {
	q := or.stateOf(n)
	evicted, used, freed := q.evictedCount, q.usedPages, q.freedPages
	q.evictedCount, q.usedPages, q.freedPages, q.foreignReady = 0, 0, 0, 0
	if evicted == 0 || n.Draining || n.Leaving {
		return
	}
	or.countJudged(checkEvictedNeedlessly)
	if evicted > used {
		or.fail(checkEvictedNeedlessly, "node %d evicts %d chunks for %d pages", n.AsSubject(), evicted, used)
	} else if s.PagesFree >= freed+q.evictedPages && (n.SecondPages == 0 || s.DeviceFree > freed) && !n.KeepsOffers {
		// A fetch may end in the step in which the fetch got pages.
		or.fail(checkEvictedNeedlessly, "node %d evicts %d chunks although %d pages are free", n.AsSubject(), evicted, s.PagesFree)
	}
}

// verifyRest checks a cache that has nothing in flight: each page is free, or has a chunk that the cache reported as
// ready. If the cache has drained, all pages are free.
func (or *cacheOracle) verifyRest(n *world.Node, s *rank.Stats) {
	if !reportsEvictions(n) || or.w.Failure != nil {
		return
	}
	or.countJudged(checkCachePages)
	chunks, pages := 0, 0
	if !n.Draining {
		chunks, pages = len(or.stateOf(n).foreign), len(or.stateOf(n).foreign)
	}
	for k := range or.stateOf(n).present {
		if !n.Draining { // Chunks that were kept for requests leave without a report.
			chunks, pages = chunks+1, pages+or.pagesOf(k)
		}
	}
	if s.PagesFree+s.PagesEvictable != s.PagesTotal || s.DeviceFree+s.DeviceEvictable != s.DeviceTotal ||
		s.PagesEvictable+s.DeviceEvictable != pages {
		or.fail(checkCachePages, "node %d has %d of %d pages free, %d evictable, in its second pool %d of %d, %d evictable, and "+
			"%d chunks in the cache, on %d pages", n.AsSubject(), s.PagesFree, s.PagesTotal, s.PagesEvictable, s.DeviceFree, s.DeviceTotal,
			s.DeviceEvictable, chunks, pages)
	}
}

// recordDuplicates records pages that were filled from a message and freed in the same step, because the chunks were
// present already and could not be promised to a further request.
func (or *cacheOracle) recordDuplicates(n *world.Node, stored []effects.Page) {
	for _, p := range stored {
		if or.oracles().domains.mayBeForeign(&n.Pool.Pages[p.Index]) { // Its hash is that of its domain.
			if q := or.stateOf(n); q.foreignReady > 0 {
				q.foreignReady--
			} else {
				q.freedPages++
			}
			continue
		}
		key := n.Pool.Pages[p.Index].Stamps[0].Key()
		if ready, ok := pd.ReadyAt(n, or.w.Keys[key]); ok && ready.Index != p.Index {
			or.stateOf(n).freedPages++
		}
	}
}

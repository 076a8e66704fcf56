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
// request, and may evict a chunk only if the receiver then uses the page.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkEvicted     = oracle.NewCheck("S5", "chunks given up")
	checkEvictedRead = oracle.NewCheck("S4", "chunks given up, of readers")
	checkEvictedKept = oracle.NewCheck("S9", "chunks given up, of requests")
	checkEvictedVain = oracle.NewCheck("L2", "chunks given up in vain")
	checkCacheFound  = oracle.NewCheck("S2", "chunks that a cache gave up")
	checkCacheMissed = oracle.NewCheck("S9", "chunks that a cache has")
	checkCacheWhole  = oracle.NewCheck("S5", "pages of a cache")
)

// cacheOracle judges receivers that are caches.
type cacheOracle struct {
	judge
	perLife[cacheSeen]
}

func (*cacheOracle) listen(l *oracle.Listen[cacheOracle]) {
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.Publishing) { o.used(e.Node, e.Pages) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.Granting) { o.used(e.Node, e.Effect.Pages) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e pd.Got) { o.got(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e pd.Stored) {
		for _, key := range e.Command.Body.(*engine.Store).Keys {
			o.ready(e.Node, pd.KeyHashOf(e.Node, key))
		}
	})
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e world.Observed) {
		switch e.Effect.Fact {
		case effects.FactReady:
			o.ready(e.Node, e.Effect.ID)
		case effects.FactEvicted:
			o.evicted(e.Node, e.Effect.ID)
		case effects.FactReclaimed:
			o.reclaimed(e.Node, e.Effect.Count)
		}
	})
	oracle.On(l, func(o *cacheOracle, _ *oracle.Call, e counted) {
		if e.node.Caches {
			o.afterStep(e.node, e.stats)
		}
	})
}

// cacheSeen records the chunks of an incarnation of a node that is a cache.
type cacheSeen struct {
	here    map[uint32]bool   // the chunks that the cache has, by key
	own     map[uint32]uint32 // pages that the engine shares: key number plus one; these chunks leave without a report
	evicted int               // in this step
	used    int               // pages that were granted, or read into, in this step
	freed   int               // pages that were freed in this step after the newest eviction
}

func (q *cacheSeen) startReply() {
	*q = cacheSeen{here: world.Emptied(q.here), own: world.Emptied(q.own)}
}

// tellsOfEnds reports whether a node reports all evictions. A node does not report chunks of trusted senders
// (TrustUncommitted).
func tellsOfEnds(n *world.Node) bool { return n.Caches && !pd.Its(n).Cfg.TrustUncommitted }

// ready records that a chunk is ready.
func (or *cacheOracle) ready(n *world.Node, hash uint64) {
	k, ok := or.truth().named(n, hash)
	if !ok || !tellsOfEnds(n) {
		return
	}
	if p, has := pd.ReadyAt(n, or.w.Keys[k]); has && or.at(n).own[p.Index] == k+1 {
		return // The chunk leaves when the engine withdraws the page.
	}
	if or.at(n).here == nil {
		or.at(n).here = map[uint32]bool{}
	}
	or.at(n).here[k] = true
}

// shared records a page that an engine shares, until the engine withdraws the page.
func (or *cacheOracle) shared(n *world.Node, page uint32, hash uint64) {
	if k, ok := or.truth().named(n, hash); ok {
		if or.at(n).own == nil {
			or.at(n).own = map[uint32]uint32{}
		}
		or.at(n).own[page] = k + 1
	}
}

// withdrawn records that an engine has withdrawn a shared page.
func (or *cacheOracle) withdrawn(n *world.Node, page uint32) { delete(or.at(n).own, page) }

// used records pages that something will be stored into.
func (or *cacheOracle) used(n *world.Node, pages []effects.Page) {
	if n.Caches && (n.Arena == 0 || !n.InArena(pages[0].Index)) {
		or.at(n).used += len(pages)
	}
}

// evicted checks a chunk that is evicted: the chunk was present, no engine or peer reads the chunk, and the chunk is
// promised to no request.
func (or *cacheOracle) evicted(n *world.Node, hash uint64) {
	q := or.at(n)
	q.evicted, q.freed = q.evicted+1, 0
	k, ok := or.truth().named(n, hash)
	if !tellsOfEnds(n) {
		or.void(checkEvicted)
		return
	}
	or.judged(checkEvicted, checkEvictedRead)
	if !ok || !q.here[k] {
		or.fail(checkEvicted, "node %d gives up a chunk that it has not", n.It())
		return
	}
	delete(q.here, k)
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Pins > 0 && pg.Stamps[0].Key() == k && q.own[uint32(i)] == 0 {
			or.fail(checkEvictedRead, "node %d gives up chunk %d while its engine reads it from page %d",
				n.It(), oracle.Key(k), n.ItsPage(uint32(i)))
			return
		}
	}
	if n.Arena > 0 {
		or.all().arena.evicted(n, k)
	}
	for job := range or.w.Jobs {
		if or.promises(n, job, k) {
			or.fail(checkEvictedKept, "node %d gives up chunk %d, which it keeps for request %q",
				n.It(), oracle.Key(k), oracle.Request(or.w.Jobs[job].Name))
			return
		}
	}
}

// reclaimed records pages that came back from a grant. Example: a node that was frozen makes room for the first request
// in the mailbox, and then finds in the same step that grants expired meanwhile.
func (or *cacheOracle) reclaimed(n *world.Node, pages uint32) { or.at(n).freed += int(pages) }

// promises reports whether a chunk is certainly promised to a request at this instant, and the request has not read the
// chunk yet.
func (or *cacheOracle) promises(n *world.Node, job int, k uint32) bool {
	j := &or.w.Jobs[job]
	if j.Receiver != n.ID || j.PlainTo || n.Draining || n.Leaving || j.Given[plan.WantAbandon] > 0 {
		return false // The reader is at another node or has read the chunk.
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		if !or.all().claims.promisedTo(n, b) || or.all().claims.read(n, job) {
			continue
		}
		if or.judged(checkEvictedKept); slices.Contains(j.Ids[b.From:b.To], k) {
			return true
		}
	}
	return false
}

// got checks which chunks a Get finds in a cache.
func (or *cacheOracle) got(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !tellsOfEnds(n) || n.Draining || n.Leaving {
		return
	}
	j, q := &or.w.Jobs[c.Job], or.at(n)
	for i := range e.Pages {
		if or.judged(checkCacheFound); !q.here[j.Ids[i]] && q.own[e.Pages[i].Index] != j.Ids[i]+1 {
			or.fail(checkCacheFound, "node %d finds chunk %d of request %q, which it has given up",
				n.It(), oracle.Key(j.Ids[i]), oracle.Request(j.Name))
			return
		}
	}
	if !misses(e.Code) || j.After(e.Hits) >= len(j.Ids) {
		return
	}
	if or.judged(checkCacheMissed); q.here[j.Ids[j.After(e.Hits)]] {
		or.fail(checkCacheMissed, "node %d does not find chunk %d of request %q, which it has and did not give up",
			n.It(), oracle.Key(j.Ids[j.After(e.Hits)]), oracle.Request(j.Name))
	}
}

// afterStep checks that a step evicted no more chunks than the number of pages that the step used, and evicted nothing
// while there was room.
func (or *cacheOracle) afterStep(n *world.Node, s *rank.Stats) {
	q := or.at(n)
	evicted, used, freed := q.evicted, q.used, q.freed
	q.evicted, q.used, q.freed = 0, 0, 0
	if evicted == 0 || n.Draining || n.Leaving {
		return
	}
	or.judged(checkEvictedVain)
	if evicted > used {
		or.fail(checkEvictedVain, "node %d gives up %d chunks for %d pages", n.It(), evicted, used)
	} else if s.PagesFree > freed && (n.Second == 0 || s.DeviceFree > freed) && !n.Delays {
		// A fetch may end in the step in which the fetch got pages.
		or.fail(checkEvictedVain, "node %d gives up %d chunks and has %d pages free", n.It(), evicted, s.PagesFree)
	}
}

// rests checks a cache that has nothing in flight: each page is free, or has a chunk that the cache reported as ready.
// If the cache has drained, all pages are free.
func (or *cacheOracle) rests(n *world.Node, s *rank.Stats) {
	if !tellsOfEnds(n) || or.w.Failure != nil {
		return
	}
	or.judged(checkCacheWhole)
	here := len(or.at(n).here)
	if n.Draining {
		here = 0 // Chunks that were kept for requests leave without a report.
	}
	if s.PagesFree+s.PagesEvictable != s.PagesTotal || s.DeviceFree+s.DeviceEvictable != s.DeviceTotal ||
		s.PagesEvictable+s.DeviceEvictable != here {
		or.fail(checkCacheWhole, "node %d has %d of %d pages free, %d to spare, in its second pool %d of %d, %d to spare, and "+
			"%d chunks here", n.It(), s.PagesFree, s.PagesTotal, s.PagesEvictable, s.DeviceFree, s.DeviceTotal, s.DeviceEvictable, here)
	}
}

// lostRaces records pages that were filled from a message and freed in the same step, because the chunks were present
// already and could not be promised to a further request.
func (or *cacheOracle) lostRaces(n *world.Node, took []effects.Page) {
	for _, p := range took {
		key := n.Pool.Pages[p.Index].Stamps[0].Key()
		if ready, ok := pd.ReadyAt(n, or.w.Keys[key]); ok && ready.Index != p.Index {
			or.at(n).freed++
		}
	}
}

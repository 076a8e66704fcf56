package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A receiver that is a cache has each chunk that ever became ready in this life, but for those that it says it gave up.
// It gives none up that somebody reads or that a request is promised, and none but for a page that it then uses.

// What is judged here.
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

// cacheSeen is what it knows of the chunks of a life that is a cache.
type cacheSeen struct {
	here    map[uint32]bool // by key
	evicted int             // in this step
	used    int             // pages that were granted, or read into, in this step
}

func (q *cacheSeen) empty() { *q = cacheSeen{here: emptied(q.here)} }

// tells says whether a node tells of all that it has: of chunks whose senders it takes at their word it does not.
func (n *node) tells() bool { return n.caches && !n.cfg.TrustUncommitted }

// ready notes that a chunk is ready.
func (or *cacheOracle) ready(n *node, hash uint64) {
	k, ok := or.truth().named(n, hash)
	if !ok || !n.tells() {
		return
	}
	if or.at(n).here == nil {
		or.at(n).here = map[uint32]bool{}
	}
	or.at(n).here[k] = true
}

// used notes pages that something will be stored into.
func (or *cacheOracle) used(n *node, pages []effects.Page) {
	if n.caches {
		or.at(n).used += len(pages)
	}
}

// evicted checks a chunk that is given up: it was here, nobody reads it, and no request is promised it.
func (or *cacheOracle) evicted(n *node, hash uint64) {
	q := or.at(n)
	q.evicted++
	k, ok := or.truth().named(n, hash)
	if !n.tells() {
		or.void(checkEvicted)
		return
	}
	or.judged(checkEvicted, checkEvictedRead)
	if !ok || !q.here[k] {
		or.fail(checkEvicted, "node %d gives up a chunk that it has not", n.it())
		return
	}
	delete(q.here, k)
	for i := range n.pool.pages {
		if pg := &n.pool.pages[i]; pg.pins > 0 && pg.stamps[0].key() == k {
			or.fail(checkEvictedRead, "node %d gives up chunk %d while its engine reads it from page %d",
				n.it(), oracle.Key(k), n.itsPage(uint32(i)))
			return
		}
	}
	for job := range or.w.jobs {
		if or.promises(n, job, k) {
			or.fail(checkEvictedKept, "node %d gives up chunk %d, which it keeps for request %q",
				n.it(), oracle.Key(k), oracle.Request(or.w.jobs[job].name))
			return
		}
	}
}

// promises says whether a request is certainly promised a chunk at this instant, and has not come for it.
func (or *cacheOracle) promises(n *node, job int, k uint32) bool {
	j := &or.w.jobs[job]
	if j.receiver != n.id || j.plainTo || n.draining || n.leaving || j.given[plan.WantAbandon] > 0 ||
		j.given[plan.WantFetch] > 0 {
		return false // Its reader is not here, or has been.
	}
	for i := range j.batches {
		b := &j.batches[i]
		if !or.all().claims.promisedTo(n, b) || or.all().claims.hadSome(job) {
			continue
		}
		if or.judged(checkEvictedKept); slices.Contains(j.ids[b.from:b.to], k) {
			return true
		}
	}
	return false
}

// got checks what a Get finds of what a cache has.
func (or *cacheOracle) got(n *node, e *effects.Deliver, c *command) {
	if !n.tells() || n.draining || n.leaving {
		return
	}
	j, q := &or.w.jobs[c.job], or.at(n)
	for i := range e.Pages {
		if or.judged(checkCacheFound); !q.here[j.ids[i]] {
			or.fail(checkCacheFound, "node %d finds chunk %d of request %q, which it has given up",
				n.it(), oracle.Key(j.ids[i]), oracle.Request(j.name))
			return
		}
	}
	if e.Code != effects.NotFound && e.Code != effects.Lapsed || int(e.Hits) >= len(j.ids) {
		return
	}
	if or.judged(checkCacheMissed); q.here[j.ids[e.Hits]] {
		or.fail(checkCacheMissed, "node %d does not find chunk %d of request %q, which it has and did not give up",
			n.it(), oracle.Key(j.ids[e.Hits]), oracle.Request(j.name))
	}
}

// afterStep checks, after a step, that no more was given up in it than it used: nothing is while there is room.
func (or *cacheOracle) afterStep(n *node, s *rank.Stats) {
	q := or.at(n)
	evicted, used := q.evicted, q.used
	q.evicted, q.used = 0, 0
	if evicted == 0 || n.draining || n.leaving {
		return
	}
	or.judged(checkEvictedVain)
	if evicted > used {
		or.fail(checkEvictedVain, "node %d gives up %d chunks for %d pages", n.it(), evicted, used)
	} else if s.PagesFree > 0 && !n.delays { // A fetch may end in the step in which it got pages.
		or.fail(checkEvictedVain, "node %d gives up %d chunks and has %d pages free", n.it(), evicted, s.PagesFree)
	}
}

// rests checks a cache that nobody wants anything of: each page is free, or has a chunk that it told of; all are
// free of one that has drained.
func (or *cacheOracle) rests(n *node, s *rank.Stats) {
	if !n.tells() || or.w.failure != nil {
		return
	}
	or.judged(checkCacheWhole)
	here := len(or.at(n).here)
	if n.draining {
		here = 0 // What was kept for requests goes without a word.
	}
	if s.PagesFree+here != s.PagesTotal || s.Spare != here {
		or.fail(checkCacheWhole, "node %d has %d of %d pages free, %d to spare, and %d chunks here",
			n.it(), s.PagesFree, s.PagesTotal, s.Spare, here)
	}
}

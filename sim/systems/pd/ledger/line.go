package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The order of the allocation queue: how often requests are overtaken, and whether a request waits although the pages
// are free.

// overtaking counts an overtake of each request that the served request passes, and fails the run if a request was
// overtaken too often (L7).
func (or *queueOracle) overtaking(n *world.Node, w *waiter, place int) {
	or.all().both.passing(n)
	for i := range or.at(n).waiters[:place] {
		o := &or.at(n).waiters[i]
		if o.with(w) || !or.first(n, i) || or.w.Failure != nil {
			continue
		}
		if counts, often := or.passed(n, o); !counts {
			or.void(checkOvertaken)
		} else if or.judged(checkOvertaken); often {
			or.fail(checkOvertaken, "node %d lets request %d wait although %d grants and reserves went past it; %d are allowed",
				n.It(), oracle.Message(o.request), o.overtaken, pd.Its(n).Cfg.BypassMax)
		}
	}
}

// passed counts that a request of another class was served before o, which is the first request of a class. The results
// are whether that counts, and whether o was overtaken too often (L7). A request that waits for room in the peer's
// share, or for more than pages, was not overtaken.
func (or *queueOracle) passed(n *world.Node, o *waiter) (counts, often bool) {
	s := pd.StatsOf(n)
	if !o.linked(n) || or.takenBy(n, &s, o)+o.pages > shareOf(n) || manyGrants(n, &s) {
		return false, false
	}
	// From each of the rival classes, a request that was overtaken as often may be served first.
	o.rivals = max(o.rivals, or.heads(n))
	if o.overtaken++; o.overtaken == int(pd.Its(n).Cfg.BypassMax) && or.all().both.oldest(n) != 0 {
		pd.Met(&or.w.Result, pd.KeptFromEngine)
	}
	return true, o.overtaken > int(pd.Its(n).Cfg.BypassMax)+o.rivals
}

// heads counts the classes with a request that waits or may wait. The node's own engine is a class.
func (or *queueOracle) heads(n *world.Node) (count int) {
	if both(n) {
		count++
	}
	for i := range or.at(n).waiters {
		if or.first(n, i) {
			count++
		}
	}
	return count
}

// first reports whether a request is the first of a class.
func (or *queueOracle) first(n *world.Node, i int) bool {
	my := or.at(n)
	w := &my.waiters[i]
	for k := range my.waiters[:i] {
		if o := &my.waiters[k]; o.keys > 0 && o.with(w) {
			return false
		}
	}
	return w.keys > 0
}

// shareOf returns how many pages a class may have granted or in quarantine.
func shareOf(n *world.Node) int {
	return max(1, int(pd.Its(n).Cfg.Pages)*int(pd.Its(n).Cfg.PeerSharePct)/100)
}

// manyGrants reports whether a class may have used up a class's share of grants. A class may have no more grants than
// the class leaves free, and no class reaches this share before half of the table is taken.
func manyGrants(n *world.Node, s *rank.Stats) bool { return 2*s.Grants >= int(pd.Its(n).Cfg.GrantsMax) }

// waitInVain fails the run if the first request of every class, including the class of the node's own engine, could be
// served with the free pages. If any first request could not be served, the free pages may be kept for that request,
// because it was overtaken too often.
func (or *queueOracle) waitInVain(n *world.Node, s *rank.Stats) {
	if n.Draining || n.Busy {
		return
	}
	own, all := or.all().both.waits(n, s)
	var inVain *waiter
	if own != 0 && !all {
		or.void(checkWaits)
		return
	}
	for i := range or.at(n).waiters {
		o := &or.at(n).waiters[i]
		if !or.first(n, i) || !o.linked(n) {
			continue
		}
		room, pages := s.PagesFree, o.pages
		if n.Caches { // Chunks that are present already make no room for the rest.
			room, pages = room+s.PagesEvictable, o.keys
		}
		if pages > room {
			or.judged(checkWaits)
			return
		}
		if or.takenBy(n, s, o)+o.pages > shareOf(n) || manyGrants(n, s) || s.Entries+o.keys > s.PagesTotal ||
			o.layers && 2*(s.Bundles+o.keys) > int(pd.Its(n).Cfg.BundlesMax) {
			or.void(checkWaits)
			return
		}
		or.judged(checkWaits)
		inVain = o
	}
	if own != 0 {
		or.all().both.inVain(n, s, own)
	} else if inVain != nil {
		or.fail(checkWaits, "node %d has %d pages free and lets request %d wait for %d",
			n.It(), s.PagesFree, oracle.Message(inVain.request), inVain.pages)
	}
}

package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The line of those who wait for pages: who is passed by whom, and whether anybody waits for what is free.

// overtaking counts who is passed by one that is served.
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

// passed counts that somebody of another class was served before one who is the first of its own, and says whether that
// was too often. One that waits for its share, or for more than pages, was not passed.
func (or *queueOracle) passed(n *world.Node, o *waiter) (counts, often bool) {
	s := pd.StatsOf(n)
	if !o.linked(n) || or.takenBy(n, &s, o)+o.pages > shareOf(n) || manyGrants(n, &s) {
		return false, false
	}
	// Of each other class one that was passed as often may go first.
	o.rivals = max(o.rivals, or.heads(n))
	if o.overtaken++; o.overtaken == int(pd.Its(n).Cfg.BypassMax) && or.all().both.oldest(n) != 0 {
		pd.Met(&or.w.Result, pd.KeptFromEngine)
	}
	return true, o.overtaken > int(pd.Its(n).Cfg.BypassMax)+o.rivals
}

// heads counts the classes of which somebody waits, or may: a node's own engine is one.
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

// first says whether a waiter is the first of its class.
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

// shareOf is how many pages one class may have granted or in quarantine.
func shareOf(n *world.Node) int {
	return max(1, int(pd.Its(n).Cfg.Pages)*int(pd.Its(n).Cfg.PeerSharePct)/100)
}

// manyGrants says that a class may have its share of grants: no more than it leaves, which it has not before half of
// the table is taken.
func manyGrants(n *world.Node, s *rank.Stats) bool { return 2*s.Grants >= int(pd.Its(n).Cfg.GrantsMax) }

// waitInVain fails if all that are the first of their class, of which the node's own engine is one, could be served
// with what is free. Where one could not, he may be passed too often already, and have the free pages kept for him.
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
		if n.Caches { // What it finds here makes no room for the rest.
			room, pages = room+s.Spare, o.keys
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

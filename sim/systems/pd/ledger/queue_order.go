package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The order of the allocation queue: how often requests are overtaken, and whether a request waits although the pages
// are free.

var checkCollect = oracle.NewCheck("L7", "pages that are kept for a request that was passed too rarely")

// verifyOvertaken counts an overtake of each request that the served request passes, and fails the run if a request was
// overtaken too often (L7).
func (or *queueOracle) verifyOvertaken(n *world.Node, w *pendingRequest, place int) {
	or.oracles().dualRole.countOvertake(n)
	for i := range or.stateOf(n).pending[:place] {
		o := &or.stateOf(n).pending[i]
		if o.isSameClass(w) || !or.isHead(n, i) || or.w.Failure != nil {
			continue
		}
		if counts, tooOften := or.countOvertake(n, o, w); !counts {
			or.countVoid(checkOvertaken)
		} else if or.countJudged(checkOvertaken); tooOften {
			or.fail(checkOvertaken, "node %d lets request %d wait although its origin was overtaken %d times, and its name %d times by "+
				"others of the origin; %d are allowed", n.AsSubject(), oracle.Message(o.request), o.overtaken.byOthers,
				o.overtaken.bySiblings, pd.InfoOf(n).Cfg.BypassMax)
		}
	}
}

// countOvertake counts that a request of another class, or the node's own engine if w is nil, was served before o, which
// is the first request of a class. The results are whether that counts, and whether o was overtaken too often (L7). A
// request that waits for room in the peer's share, or for more than pages, was not overtaken.
func (or *queueOracle) countOvertake(n *world.Node, o, w *pendingRequest) (counts, tooOften bool) {
	s, kin := pd.StatsOf(n), strangers
	if w != nil {
		kin = or.kinOf(n, o, w)
	}
	if kin == unknownKin || !o.canBeServed(n) || or.peerPagesMax(n, &s, o)+o.pageCount > pageShare(n) || or.mayExceedOrigin(n, &s, o) ||
		or.oracles().tenantShares.mayExceed(n, &s, o.tenant, o.pageCount) || mayExceedGrants(n, &s) {
		return false, false
	}
	// From each of the rival origins or names, a request that was overtaken as often may be served first.
	rivals, limit := or.countRivals(n, o), int(pd.InfoOf(n).Cfg.BypassMax)
	o.rivals = overtakeCounts{max(o.rivals.byOthers, rivals.byOthers), max(o.rivals.bySiblings, rivals.bySiblings)}
	count, most := &o.overtaken.byOthers, limit+o.rivals.byOthers
	if kin == siblings {
		count, most = &o.overtaken.bySiblings, limit+o.rivals.bySiblings
	}
	if *count++; *count == limit && or.oracles().dualRole.oldestReserve(n) != 0 {
		pd.CountConjunction(&or.w.Result, pd.PeerAtBypassLimit)
	}
	return true, *count > most
}

// countPass counts that a request was served, or may have been, against the waiting requests of other classes. The node's
// own engine, if w is nil, is a class.
func (or *queueOracle) countPass(n *world.Node, w *pendingRequest) {
	if w != nil && w.keyCount == 0 {
		return
	}
	state := or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		if w != nil && o.isSameClass(w) {
			continue
		}
		kin := strangers
		if w != nil {
			kin = or.kinOf(n, o, w)
		}
		if kin != strangers {
			o.passes.bySiblings++
		}
		if kin != siblings {
			o.passes.byOthers++
		}
	}
	if w != nil {
		or.endOvertakes(n, w)
	}
}

// mayCollect reports whether pages may be kept for o, a request that waits for more pages than are free, while w waits,
// or while the node's own engine does if w is nil. o must have been passed as often as is allowed: by siblings if w is
// one, and otherwise by other origins.
func (or *queueOracle) mayCollect(n *world.Node, o, w *pendingRequest) bool {
	kin := strangers
	if w != nil {
		kin = or.kinOf(n, o, w)
	}
	limit := bypassLimit(n)
	return kin != siblings && o.passes.byOthers >= limit || kin != strangers && o.passes.bySiblings >= limit
}

// bypassLimit returns how often a request is certainly passed before pages are kept for it. On a node with passes that
// are not counted here it is 0.
func bypassLimit(n *world.Node) int {
	cfg := &pd.InfoOf(n).Cfg
	if cfg.Shares || cfg.Layers > 0 {
		return 0
	}
	return int(cmp.Or(cfg.BypassMax, 16))
}

// isTenantHead reports whether a request may be the first of a class, because all earlier ones may be held back by the
// shares of other tenants.
func (or *queueOracle) isTenantHead(n *world.Node, i int) bool {
	if !hasTenantShares(n) || or.stateOf(n).pending[i].keyCount == 0 {
		return false
	}
	state := or.stateOf(n)
	w := &state.pending[i]
	for k := range state.pending[:i] {
		o := &state.pending[k]
		if o.keyCount > 0 && o.isSameClass(w) && (o.tenant == w.tenant || !o.canBeServed(n) || !or.heldBack(n, k)) {
			return false
		}
	}
	return true
}

// isHead reports whether a request is the first of a class.
func (or *queueOracle) isHead(n *world.Node, i int) bool {
	state := or.stateOf(n)
	w := &state.pending[i]
	for k := range state.pending[:i] {
		if o := &state.pending[k]; o.keyCount > 0 && o.isSameClass(w) {
			return false
		}
	}
	return w.keyCount > 0
}

// pageShare returns how many pages a class may have granted or in quarantine.
func pageShare(n *world.Node) int {
	return max(1, int(pd.InfoOf(n).Cfg.Pages)*int(pd.InfoOf(n).Cfg.PeerSharePct)/100)
}

// mayExceedGrants reports whether a class may have used up a class's share of grants. A class may have no more grants
// than the class leaves free, and no class reaches this share before half of the table is taken.
func mayExceedGrants(n *world.Node, s *rank.Stats) bool {
	return 2*s.Grants >= int(pd.InfoOf(n).Cfg.GrantsMax)
}

// mayKeepFrom reports whether w, or a Reserve of the node's own engine if w is nil, may have to wait while pages are kept:
// for a request for more pages than are free, or for a servable request that has to wait for such a request itself.
// Example: the first request of an origin is passed by no other origin any more, and keeps a page from another origin,
// which in turn must not be passed by a sibling of the first.
func (or *queueOracle) mayKeepFrom(n *world.Node, short, waiting []*pendingRequest, w *pendingRequest) bool {
	if slices.ContainsFunc(short, func(o *pendingRequest) bool { return or.mayCollect(n, o, w) }) {
		return true
	}
	return slices.ContainsFunc(waiting, func(x *pendingRequest) bool {
		return x != w && or.mayCollect(n, x, w) &&
			slices.ContainsFunc(short, func(o *pendingRequest) bool { return or.mayCollect(n, o, x) })
	})
}

// verifyNoNeedlessWait fails the run if the first request of a class, including the class of the node's own engine, could
// be served with the free pages, unless pages may be kept for the first request of another class (mayCollect).
func (or *queueOracle) verifyNoNeedlessWait(n *world.Node, s *rank.Stats) {
	if n.Draining || n.Busy {
		return
	}
	reserve, servable := or.oracles().dualRole.findServableReserve(n, s)
	var waiting, short []*pendingRequest // servable requests, and requests for more pages than are free
	if reserve != 0 && !servable {
		or.countVoid(checkNeedlessWait)
		return
	}
	for i := range or.stateOf(n).pending {
		o := &or.stateOf(n).pending[i]
		if !or.isHead(n, i) && !or.isTenantHead(n, i) || !o.canBeServed(n) {
			continue
		}
		room, pages := s.PagesFree, o.pageCount
		if n.IsCache { // Chunks that are present already make no room for the rest.
			room, pages = room+s.PagesEvictable, o.keyCount
		}
		if pages > room {
			if hasTenantShares(n) { // A request of another tenant may be behind it.
				or.countVoid(checkCollect)
				return
			}
			if max(o.passes.byOthers, o.passes.bySiblings) < bypassLimit(n) {
				or.countJudged(checkCollect)
			} else {
				or.countJudged(checkNeedlessWait)
			}
			short = append(short, o)
			continue
		}
		if or.peerPagesMax(n, s, o)+o.pageCount > pageShare(n) || or.mayExceedOrigin(n, s, o) || mayExceedGrants(n, s) ||
			s.Entries+o.keyCount > s.PagesTotal ||
			o.layers && or.oracles().bundles.mayExceed(n, s, o) {
			or.countVoid(checkNeedlessWait)
			return
		}
		if or.heldBack(n, i) { // The requests behind it are not kept waiting.
			or.countVoid(checkNeedlessWait)
			continue
		}
		or.countJudged(checkNeedlessWait)
		waiting = append(waiting, o)
	}
	keepsFrom := func(w *pendingRequest) bool { return or.mayKeepFrom(n, short, waiting, w) }
	if reserve != 0 && !keepsFrom(nil) {
		or.oracles().dualRole.failNeedlessWait(n, s, reserve)
		return
	}
	for _, w := range waiting {
		switch {
		case keepsFrom(w):
		case len(short) > 0:
			or.fail(checkCollect, "node %d lets request %d wait for %d of %d free pages, for a request that was passed less than %d times",
				n.AsSubject(), oracle.Message(w.request), w.pageCount, s.PagesFree, pd.InfoOf(n).Cfg.BypassMax)
			return
		default:
			or.fail(checkNeedlessWait, "node %d has %d pages free and lets request %d wait for %d",
				n.AsSubject(), s.PagesFree, oracle.Message(w.request), w.pageCount)
			return
		}
	}
}

package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The turns of the allocation queue belong to origins, because names cost nothing: origins take turns, and the names of
// an origin take turns among themselves (rule M9). So overtakes are counted twice: those by other origins since the
// origin of a request was served last, and those by other names of the same origin.

var checkTurns = oracle.NewCheck("L7", "turns of origins and of their names")

// overtakeCounts counts overtakes of a request, or its rivals, at both levels.
type overtakeCounts struct {
	byOthers   int // other origins; the node's own engine is one
	bySiblings int // other names of the same origin
}

// turnsTaken names what was served last while a request was the first of its class.
type turnsTaken struct {
	other      effects.Origin // another origin, since the request's own was served
	sibling    requestClass   // another class of the same origin
	hasOther   bool
	hasSibling bool
}

// requestClass names a fairness class.
type requestClass struct {
	peer effects.Incarnation
	conn uint64 // of a plain sender
}

// class returns the fairness class of a request.
func (w *pendingRequest) class() requestClass {
	if w.peer == (effects.Incarnation{}) {
		return requestClass{conn: w.conn}
	}
	return requestClass{peer: w.peer}
}

// originOf returns the origin that a request counts against, or reports false if that is not certain.
func (or *queueOracle) originOf(n *world.Node, w *pendingRequest) (effects.Origin, bool) {
	switch {
	case len(or.w.SourcePlan.Topology.Origins) == 0 && !n.Custom:
		return 0, true
	case w.peer != effects.Incarnation{}:
		return or.oracles().origins.stateOf(n).originOf(w.peer)
	}
	return or.w.OriginOf(n, w.conn), w.conn != 0
}

// A kinship says whether two requests are of the same origin.
type kinship uint8

const (
	unknownKin kinship = iota
	siblings
	strangers
)

// kinOf reports whether two requests of different classes are of the same origin.
func (or *queueOracle) kinOf(n *world.Node, a, b *pendingRequest) kinship {
	x, known := or.originOf(n, a)
	y, alsoKnown := or.originOf(n, b)
	switch {
	case !known || !alsoKnown:
		return unknownKin
	case x == y:
		return siblings
	}
	return strangers
}

// endOvertakes ends the counts of a service: the requests of the same origin have had their turn. If the origin is not
// certain, the counts of all end.
func (or *queueOracle) endOvertakes(n *world.Node, w *pendingRequest) {
	state := or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		if o.isSameClass(w) {
			o.overtaken = overtakeCounts{}
		} else if or.kinOf(n, o, w) != strangers {
			o.overtaken.byOthers = 0
		}
	}
}

// countRivals counts the origins with a request that waits or may wait, and such classes that may be of the origin of o.
// The node's own engine is an origin, and so is each class whose origin is not certain.
func (or *queueOracle) countRivals(n *world.Node, o *pendingRequest) (count overtakeCounts) {
	if isDualRole(n) {
		count.byOthers++
	}
	state := or.stateOf(n)
	for i := range state.pending {
		w := &state.pending[i]
		if !or.isHead(n, i) && !or.isTenantHead(n, i) {
			continue
		}
		if o != nil && (o.isSameClass(w) || or.kinOf(n, o, w) != strangers) {
			count.bySiblings++
		}
		if !slices.ContainsFunc(state.pending[:i], func(x pendingRequest) bool { return x.keyCount > 0 && or.kinOf(n, &x, w) == siblings }) {
			count.byOthers++
		}
	}
	return count
}

// verifyTurn checks that a request which waited was not served out of turn: its origin, or its class within the origin,
// was served just before, while a request of another one waited that needs no more pages. pages is the number of pages
// that the request got.
func (or *queueOracle) verifyTurn(n *world.Node, w *pendingRequest, pages int) {
	cfg := &pd.InfoOf(n).Cfg
	if cfg.Shares || cfg.Layers > 0 || hasTenantShares(n) {
		return // The node's own gets take turns that are not seen here, or some requests are held back.
	}
	origin, known := or.originOf(n, w)
	if !known {
		or.blurTurns(n, w)
		return
	}
	s, state := pd.StatsOf(n), or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		kin, last := or.kinOf(n, o, w), &o.servedLast
		if o.isSameClass(w) || !or.isHead(n, i) || o.isNew || kin == unknownKin {
			*last = turnsTaken{}
			continue
		}
		isRepeated := kin == siblings && last.hasSibling && last.sibling == w.class() || kin == strangers && last.hasOther && last.other == origin
		isContested := (last.hasSibling || last.hasOther) && !w.isNew && w.offerGrant == 0 && or.couldTakePages(n, &s, o, pages)
		if kin == siblings {
			last.sibling, last.hasSibling, last.hasOther = w.class(), true, false
		} else {
			last.other, last.hasOther = origin, true
		}
		if !isContested {
			or.countVoid(checkTurns)
		} else if or.countJudged(checkTurns); isRepeated && or.w.Failure == nil {
			or.fail(checkTurns, "node %d serves request %d of a host or name that had the last turn, and lets request %d wait",
				n.AsSubject(), oracle.Message(w.request), oracle.Message(o.request))
		}
	}
}

// couldTakePages reports whether a request could certainly have been served with the pages that another request got.
func (or *queueOracle) couldTakePages(n *world.Node, s *rank.Stats, o *pendingRequest, pages int) bool {
	if o.offerGrant != 0 || o.layers || o.pageCount > pages || n.IsCache || n.Draining || s.Entries+o.keyCount > s.PagesTotal ||
		or.peerPagesMax(n, s, o)+o.pageCount > pageShare(n) || or.mayExceedOrigin(n, s, o) || mayExceedGrants(n, s) {
		return false
	}
	state := or.stateOf(n)
	for i := range state.pending { // Pages may be kept for another name of the origin.
		if x := &state.pending[i]; !x.isSameClass(o) && x.keyCount > 0 && or.kinOf(n, x, o) != strangers &&
			x.passes.bySiblings >= bypassLimit(n) {
			return false
		}
	}
	return true
}

// blurTurns forgets what was served last, because a request, or the node's own engine if w is nil, may have had a turn
// without pages.
func (or *queueOracle) blurTurns(n *world.Node, w *pendingRequest) {
	state := or.stateOf(n)
	for i := range state.pending {
		o := &state.pending[i]
		if w == nil {
			o.servedLast.hasOther = false
			continue
		}
		origin, known := or.originOf(n, w)
		o.servedLast.hasOther = o.servedLast.hasOther && known && o.servedLast.other == origin
		o.servedLast.hasSibling = o.servedLast.hasSibling && o.servedLast.sibling == w.class()
	}
}

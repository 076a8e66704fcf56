package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Some tables of a machine have rows for each peer. No peer may have more rows of such a table than the peer leaves
// free (S18). Where a fact is unknown, the ledger counts fewer rows.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkSharesCounted = oracle.NewCheck("S18", "shares, counted twice")
	checkOfferShare    = oracle.NewCheck("S18", "shares of offers")
	checkPendingShare  = oracle.NewCheck("S18", "shares of pending requests")
	checkNoRoom        = oracle.NewCheck("S18", "requests refused for lack of room")
	checkGrantShare    = oracle.NewCheck("S18", "shares of grants")
	checkRetryRefused  = oracle.NewCheck("L8", "retries of granted operations")
)

// tableShareOracle judges the shares of peers in a machine's tables.
type tableShareOracle struct{ oracleBase }

func (*tableShareOracle) subscribe(l *oracle.Subscriptions[tableShareOracle]) {
	oracle.On(l, func(o *tableShareOracle, _ *oracle.Call, e stepCounted) {
		if o.isRecountStep(e.node) {
			o.verifyCounts(e.node, false)
		}
	})
}

// shareNames contains the names of the tables in which each peer has a share of the rows.
//
//kvferry:table
var shareNames = [rank.SharedCount]string{
	rank.SharedRequests:     "pending requests",
	rank.SharedDoneMessages: "notifications",
	rank.SharedDoneAddrs:    "done addresses",
	rank.SharedOffers:       "deferred offers",
	rank.SharedLocations:    "remote locations of offers",
	rank.SharedClassRows:    "class rows",
	rank.SharedClaims:       "further claims",
}

// verifyCounts checks that the machine's counts of the peers' rows match the tables, and are zero when all should be
// quiet.
func (or *tableShareOracle) verifyCounts(n *world.Node, quiet bool) {
	or.countJudged(checkSharesCounted)
	counted, actual := pd.SharesOf(n)
	for i, name := range shareNames {
		if quiet && actual[i] != 0 {
			or.fail(checkSharesCounted, "node %d has %d %s left when nothing is in flight", n.AsSubject(), actual[i], name)
			return
		}
		if counted[i] != actual[i] {
			or.fail(checkSharesCounted, "node %d counts %d %s in the shares of peers, and there are %d",
				n.AsSubject(), counted[i], name, actual[i])
			return
		}
	}
}

// verifyOfferShare checks a sender's share when a receiver keeps a further offer: no peer has more offers, or more
// chunks in offers, than the peer leaves free. Offers that may be over by now are not counted.
func (or *tableShareOracle) verifyOfferShare(n *world.Node, newest *deferredOffer) {
	kept := or.oracles().deferredOffers.stateOf(n)
	or.countJudged(checkOfferShare)
	offers, allOffers, chunks, allChunks := 0, 0, 0, 0
	for i := range kept.offers {
		k := &kept.offers[i]
		if !or.oracles().deferredOffers.mustBeKept(n, k) {
			continue
		}
		certainChunks := 0
		for m := range k.chunks {
			if !k.chunks[m].uncertain {
				certainChunks++
			}
		}
		if certainChunks == 0 {
			continue
		}
		allOffers, allChunks = allOffers+1, allChunks+certainChunks
		if k.peer == newest.peer {
			offers, chunks = offers+1, chunks+certainChunks
		}
	}
	if limit := int(pd.InfoOf(n).Cfg.OffersMax); offers+allOffers > limit+1 {
		or.fail(checkOfferShare, "node %d keeps %d offers of a peer, and %d in all, in a table of %d",
			n.AsSubject(), offers, allOffers, limit)
	}
	if limit := int(pd.InfoOf(n).Cfg.LocationsMax); chunks+allChunks > limit+len(newest.chunks) && or.w.Failure == nil {
		or.fail(checkOfferShare, "node %d keeps %d chunks of a peer, and %d in all, in a table of %d",
			n.AsSubject(), chunks, allChunks, limit)
	}
}

// verifyPendingShare checks, after the step in which a request arrived, that the request waits only if the peer may
// have a further row in the table.
func (or *tableShareOracle) verifyPendingShare(n *world.Node, s *rank.Stats) {
	queue := or.oracles().queue.stateOf(n)
	request := queue.newRequest
	queue.newRequest = 0
	if request == 0 || len(queue.pending) == 0 {
		return
	}
	w := &queue.pending[len(queue.pending)-1]
	if w.request != request || w.keyCount == 0 || w.reading || w.peer == (effects.Incarnation{}) {
		return // The request was served or refused, or the peer has no identity.
	}
	or.countJudged(checkPendingShare)
	ofPeer := 0
	for i := range queue.pending {
		if o := &queue.pending[i]; o.peer == w.peer && o.keyCount > 0 && !o.reading {
			ofPeer++
		}
	}
	if ofPeer+s.PendingRequests > int(pd.InfoOf(n).Cfg.WaitersMax)+1 {
		or.fail(checkPendingShare, "node %d has %d waiting requests of a peer, and %d in all, in a table of %d",
			n.AsSubject(), ofPeer, s.PendingRequests, pd.InfoOf(n).Cfg.WaitersMax)
	}
}

// verifyNoRoom checks that an allocation request is refused a place in the queue only if the peer has used up the
// peer's share. The reply has been decoded already.
func (or *tableShareOracle) verifyNoRoom(n *world.Node, w *pendingRequest) {
	m := &or.facts().reply.message
	queue := or.oracles().queue.stateOf(n)
	if w.keyCount == 0 || w.offerGrant != 0 || !m.HasExt || effects.CodeFromWire(m.Ext.Code) != effects.TooMany {
		return
	}
	or.countJudged(checkNoRoom)
	ofPeer, total := 0, 0
	for i := range queue.pending {
		if o := &queue.pending[i]; o.keyCount > 0 && !o.reading {
			if total++; o.peer == w.peer {
				ofPeer++
			}
		}
	}
	if ofPeer+total < int(pd.InfoOf(n).Cfg.WaitersMax) {
		or.fail(checkNoRoom,
			"node %d refuses request %d for lack of room, with %d of %d waiting requests from the peer, in a table of %d",
			n.AsSubject(), oracle.Message(w.request), ofPeer, total, pd.InfoOf(n).Cfg.WaitersMax)
	}
}

// verifyGrantShare checks that a grant is made to a peer only if the peer may have a further grant.
func (or *tableShareOracle) verifyGrantShare(n *world.Node, e *world.Grant) {
	if e.Peer == (effects.Incarnation{}) || or.w.Script != nil {
		or.countVoid(checkGrantShare)
		return
	}
	or.countJudged(checkGrantShare)
	ofPeer, total := 0, 0
	for i := range n.Pool.Pages {
		id := n.Pool.Pages[i].Granted
		if id == 0 || id == e.ID {
			continue
		}
		g := n.Grants[id]
		if g == nil || g.Peer == (effects.Incarnation{}) || n.FirstGrantedPage(g) != uint32(i) {
			continue // The end of a grant to a peer without an identity is unknown.
		}
		if total++; g.Peer == e.Peer {
			ofPeer++
		}
	}
	if ofPeer+total >= int(pd.InfoOf(n).Cfg.GrantsMax) {
		or.fail(checkGrantShare, "node %d gives a grant to a peer that already has %d of %d grants, in a table of %d",
			n.AsSubject(), ofPeer, total, pd.InfoOf(n).Cfg.GrantsMax)
	}
}

// verifyRetry checks that a retry of an operation with a grant in force is not refused: the result of the first
// attempt stays valid, whatever happened to the receiver since. A stranger, and a retry that names different keys, may
// be refused.
func (or *tableShareOracle) verifyRetry(n *world.Node, w *pendingRequest, g *world.Grant) {
	m := &or.facts().reply.message
	code := effects.CodeFromWire(m.Ext.Code)
	or.countJudged(checkRetryRefused)
	if m.HasExt && m.AllocFailed && code != effects.Stale && code != effects.Mismatch && n.AllowsStores(g) {
		or.fail(checkRetryRefused, "node %d refuses request %d although grant %d of the same operation is in force",
			n.AsSubject(), oracle.Message(w.request), n.GrantSubject(g.ID))
	}
}

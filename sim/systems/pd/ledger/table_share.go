package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/table"
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
	checkWaitingBytes  = oracle.NewCheck("S18", "shares of the bytes of pending requests")
	checkTooLarge      = oracle.NewCheck("L7", "requests refused as too large")
	checkGrantShare    = oracle.NewCheck("S18", "shares of grants")
	checkRetryRefused  = oracle.NewCheck("L8", "retries of granted operations")
)

// tableShareOracle judges the shares of peers in a machine's tables.
type tableShareOracle struct {
	oracleBase
	recount table.Recount `snap:"scratch"`
}

func (*tableShareOracle) subscribe(l *oracle.Subscriptions[tableShareOracle]) {
	oracle.On(l, func(o *tableShareOracle, _ *oracle.Call, e stepCounted) {
		if o.isRecountStep(e.node) {
			o.verifyCounts(e.node, false)
		}
	})
}

// verifyCounts checks that the machine's counts of the peers' rows match the tables, and are zero when all should be
// quiet.
func (or *tableShareOracle) verifyCounts(n *world.Node, quiet bool) {
	or.countJudged(checkSharesCounted)
	or.recount.Reset()
	pd.RecountShares(n, &or.recount)
	for _, c := range or.recount.Counts {
		switch {
		case quiet && c.Rest == table.Empty && c.Actual != 0:
			or.fail(checkSharesCounted, "node %d has %d %s left when nothing is in flight", n.AsSubject(), c.Actual, c.Name)
			return
		case c.Counted != c.Actual:
			or.fail(checkSharesCounted, "node %d counts %d %s in the shares of peers, and there are %d",
				n.AsSubject(), c.Counted, c.Name, c.Actual)
			return // What follows a difference may be wrong as well.
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
	if w.request != request || w.keyCount == 0 || w.reading {
		return // The request was served or refused.
	}
	or.countJudged(checkPendingShare, checkWaitingBytes, checkTooLarge)
	ofPeer, bytes := 0, 0
	for i := range queue.pending {
		o := &queue.pending[i]
		if o.keyCount == 0 || o.reading {
			continue
		}
		if bytes += o.bytesMin(); o.isSameClass(w) {
			ofPeer++
			bytes += o.bytesMin()
		}
	}
	if limit := waitingBytes(n); bytes > limit+1 {
		or.fail(checkWaitingBytes, "node %d lets request %d wait with %d bytes of waiting requests, those of its peer counted twice, of %d",
			n.AsSubject(), oracle.Message(w.request), bytes, limit)
		return
	}
	if n.KeepsOffers || w.layers {
		or.countVoid(checkTooLarge)
	} else if limit := servablePages(n); w.pageCount > limit {
		or.fail(checkTooLarge, "node %d lets request %d wait for %d pages, and a peer may never have more than %d",
			n.AsSubject(), oracle.Message(w.request), w.pageCount, limit)
		return
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
	if w.keyCount == 0 || w.offerGrant != 0 || !m.HasExt {
		return
	}
	code := effects.CodeFromWire(m.Ext.Code)
	if code == effects.TooLarge && !w.layers {
		or.verifyTooLarge(n, w)
	}
	if code != effects.TooMany {
		return
	}
	or.verifyRoom(n, w)
}

// verifyRoom checks that the rows, or the bytes, of waiting requests that a peer may have are used up, because a
// request of the peer is refused a place in the queue.
func (or *tableShareOracle) verifyRoom(n *world.Node, w *pendingRequest) {
	queue := or.oracles().queue.stateOf(n)
	or.countJudged(checkNoRoom)
	ofPeer, total, bytes := 0, 0, 2*w.bytesMax()
	for i := range queue.pending {
		if o := &queue.pending[i]; o.keyCount > 0 && !o.reading {
			bytes += o.bytesMax()
			if total++; o.peer == w.peer {
				ofPeer++
				bytes += o.bytesMax()
			}
		}
	}
	if bytes <= waitingBytes(n) && ofPeer+total < int(pd.InfoOf(n).Cfg.WaitersMax) {
		or.fail(checkNoRoom,
			"node %d refuses request %d for lack of room, with %d of %d waiting requests from the peer, in a table of %d",
			n.AsSubject(), oracle.Message(w.request), ofPeer, total, pd.InfoOf(n).Cfg.WaitersMax)
	}
}

// verifyOfferReply checks the refusal of an offer that was not kept: for lack of room only if the sender has used up
// its share, and as too large only if the offer could never be read.
func (or *tableShareOracle) verifyOfferReply(n *world.Node, w *pendingRequest, body []byte) {
	if w.offerGrant == 0 || w.keyCount == 0 || n.KeepsOffers {
		return
	}
	m, ok := or.facts().asAck(body)
	if !ok || !m.HasExt {
		return
	}
	queue, id := or.oracles().queue.stateOf(n), operationID{w.peer, w.operation}
	isRecorded := slices.Contains(queue.recordedOffers, id) // A retry gets the reply to the first attempt again.
	switch code := effects.CodeFromWire(m.Ext.Code); {
	case code == effects.TooMany && isRecorded:
		or.countVoid(checkNoRoom)
	case code == effects.TooMany:
		queue.recordedOffers = append(queue.recordedOffers, id)
		or.verifyRoom(n, w)
	case code == effects.TooLarge && isRecorded:
		or.countVoid(checkTooLarge)
	case code == effects.TooLarge:
		or.verifyTooLarge(n, w)
	}
}

// verifyTooLarge checks that a request is refused as too large only if a peer may never have as many pages.
func (or *tableShareOracle) verifyTooLarge(n *world.Node, w *pendingRequest) {
	if or.countJudged(checkTooLarge); w.keyCount <= servablePages(n) {
		or.fail(checkTooLarge, "node %d refuses request %d for %d chunks as too large, and a peer may have %d pages",
			n.AsSubject(), oracle.Message(w.request), w.keyCount, servablePages(n))
	}
}

// servablePages returns how many pages a request may need.
func servablePages(n *world.Node) int {
	return min(pageShare(n), int(pd.InfoOf(n).Cfg.Pages), int(cmp.Or(pd.InfoOf(n).Cfg.BatchMax, 4096)))
}

// waitingBytes returns how many bytes of waiting requests a node keeps.
func waitingBytes(n *world.Node) int { return int(cmp.Or(pd.InfoOf(n).Cfg.WaitingBytes, 64<<20)) }

// bytesMin and bytesMax return the least and the most bytes that a node may count for a waiting request: the message
// without the chunks that it carries, and what the node needs to find each key again.
func (w *pendingRequest) bytesMin() int { return len(w.body) - w.carriedBytes }
func (w *pendingRequest) bytesMax() int { return len(w.body) + 128*w.keyCount }

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

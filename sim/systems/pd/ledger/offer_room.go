package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkOfferRoom = oracle.NewCheck("S18", "room for offers, as the receiver counts it")

// verifyOfferRoom checks a sender's share when a receiver has kept a further offer, by the receiver's own counts, which
// the counts of the tables are compared with: no sender gets more offers, or more locations of chunks, than it leaves
// free. In the step of the promise rows may only have become fewer since. The reply to a retry makes no new promise.
func (or *tableShareOracle) verifyOfferRoom(n *world.Node, newest *deferredOffer, isRetry bool) {
	ofPeer, all := pd.OffersOf(n, newest.peer)
	if isRetry || newest.altered || ofPeer.Offers == 0 {
		or.countVoid(checkOfferRoom)
		return
	}
	or.countJudged(checkOfferRoom)
	cfg := &pd.InfoOf(n).Cfg
	if limit := int(cfg.OffersMax); ofPeer.Offers+all.Offers > limit+1 {
		or.fail(checkOfferRoom, "node %d keeps an offer of a peer, and counts %d offers of it and %d in all, in a table of %d",
			n.AsSubject(), ofPeer.Offers, all.Offers, limit)
		return
	}
	// The offer counts twice, and the peer was to leave as much free as it had with the offer.
	if limit := int(cfg.LocationsMax); ofPeer.Locations+all.Locations > limit+len(newest.chunks) {
		or.fail(checkOfferRoom, "node %d keeps an offer of %d chunks of a peer, and counts %d chunks of it and %d in all, in a table of %d",
			n.AsSubject(), len(newest.chunks), ofPeer.Locations, all.Locations, limit)
	}
}

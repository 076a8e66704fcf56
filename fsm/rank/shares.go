package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// OfferCounts are numbers of deferred offers, and of the locations of their chunks.
type OfferCounts struct{ Offers, Locations int }

// OffersOfPeer returns what the class of a peer is counted to have, and all that the tables contain. It is for
// inspection only. A peer without a class has none.
func (r *Rank) OffersOfPeer(peer effects.Incarnation) (ofPeer, all OfferCounts) {
	m := &r.sharedRooms
	if class := r.links.ClassByID(peer); class != 0 {
		ofPeer.Offers, ofPeer.Locations = m.Deferred.CountsOfClass(class)
	}
	return ofPeer, OfferCounts{m.Deferred.Len(), m.Store.CountLocations()}
}

// KnowsPeer reports whether an inbound peer shook hands under a name and has a row since. It is for inspection only.
func (r *Rank) KnowsPeer(peer effects.Incarnation) bool { return r.links.ClassByID(peer) != 0 }

// RecountShares counts again, from the rows, what each fairness class has of every table that the classes share. Tests
// and oracles compare this with the running counts. Beyond the first difference, further reports may be wrong as well.
func (r *Rank) RecountShares(c *table.Recount) {
	m := &r.sharedRooms
	m.Pending.RecountShares(c)
	m.Deferred.RecountShares(c, &m.Store)
	m.Store.RecountShares(c, &r.pools)
	m.Landings.RecountShares(c)
	m.Outcomes.RecountShares(c)
	r.pools.RecountShares(c, func() { m.Landings.Bundles.AddPromised(c) })
	r.pullTarget.RecountShares(c)
	if r.cfg.Recalls {
		r.recallTarget.Loans().RecountShares(c)
	}
	if r.cfg.Shares {
		r.p2pOwner.RecountShares(c)
	}
	r.producer.RecountShares(c)
}

package rank

import "github.com/kvferry/kvferry/effects"

// Indices of the resources that are divided between fairness classes.
const (
	SharedRequests      = iota // pending allocation requests
	SharedDoneMessages         // done messages to be sent
	SharedDoneAddrs            // addresses to which done messages are sent
	SharedOffers               // deferred offers
	SharedLocations            // locations of chunks of deferred offers
	SharedClassRows            // rows that keep a peer's class
	SharedClaims               // claims beyond the first on a page
	SharedWaitingBytes         // bytes of pending allocation requests
	SharedListed               // pending allocation requests in the lists of their classes
	SharedBundles              // bundles of layers
	SharedLoans                // leases of shared chunks
	SharedLoanPages            // pages that leases of shared chunks pin
	SharedArenaPages           // pages of the arena
	SharedRecalls              // leases of recalls
	SharedRecallPages          // pages that leases of recalls pin
	SharedPushes               // requests for shared chunks that this rank writes or copies
	SharedRegistrations        // registrations of consumers
	SharedOutcomes             // requests that may end, or have ended, at their sender
	SharedCount
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

// ShareCounts returns, for each of these resources, the sum of what the classes are counted to use, and what the tables
// really contain. Tests and oracles check that the two agree.
func (r *Rank) ShareCounts() (counted, actual [SharedCount]int) {
	m := &r.sharedRooms
	counted[SharedRequests], actual[SharedRequests] = m.Pending.CountedRows(), m.Pending.Len()
	counted[SharedDoneMessages], actual[SharedDoneMessages], counted[SharedDoneAddrs], actual[SharedDoneAddrs] = r.pullTarget.Shares()
	actual[SharedOffers], actual[SharedLocations] = m.Deferred.Len(), m.Store.CountLocations()
	actual[SharedClassRows] = m.Pending.Len() + m.Deferred.Len()
	counted[SharedClaims], actual[SharedClaims] = m.Store.CountExtraClaims()
	for class, busy := range m.CountClassRows() {
		counted[SharedClassRows] += int(busy)
		offers, places := m.Deferred.CountsOfClass(class)
		counted[SharedOffers] += offers
		counted[SharedLocations] += places
	}
	counted[SharedWaitingBytes], actual[SharedWaitingBytes] = m.Pending.CountBytes()
	counted[SharedListed], actual[SharedListed] = m.Pending.CountListed(), m.Pending.Len()
	counted[SharedBundles], actual[SharedBundles] = m.Landings.Bundles.ShareCounts()
	lent, lentRows := r.p2pOwner.Loans().ShareCounts()
	counted[SharedLoans], counted[SharedLoanPages], counted[SharedArenaPages] = lent.Loans, lent.Pages, lent.Copies
	actual[SharedLoans], actual[SharedLoanPages], actual[SharedArenaPages] = lentRows.Loans, lentRows.Pages, lentRows.Copies
	lent, lentRows = r.recallTarget.Loans().ShareCounts()
	counted[SharedRecalls], counted[SharedRecallPages] = lent.Loans, lent.Pages
	actual[SharedRecalls], actual[SharedRecallPages] = lentRows.Loans, lentRows.Pages
	counted[SharedPushes], actual[SharedPushes] = r.p2pOwner.ShareCounts()
	counted[SharedRegistrations], actual[SharedRegistrations] = r.producer.ShareCounts()
	counted[SharedOutcomes], actual[SharedOutcomes] = m.Outcomes.ShareCounts()
	return counted, actual
}

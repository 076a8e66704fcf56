package rank

// What is shared out between classes.
const (
	SharedAsks      = iota // places of requests that wait
	SharedWords            // ends to be told
	SharedHosts            // where to tell them
	SharedOffers           // kept for later
	SharedLocations        // of their chunks
	SharedBusy             // what keeps a peer's class
	SharedClaims           // beyond the first on a page
	Shared
)

// Shares adds up what classes are counted to have of the tables that are shared out between them, and what is in these,
// each in the same order; to look at only.
func (r *Rank) Shares() (counted, there [Shared]int) {
	m := &r.rooms
	counted[SharedAsks], there[SharedAsks] = m.Pending.Counted(), m.Pending.Len()
	counted[SharedWords], there[SharedWords], counted[SharedHosts], there[SharedHosts] = r.pullTarget.Shares()
	there[SharedOffers], there[SharedLocations] = m.Deferred.Len(), m.Store.Locations()
	there[SharedBusy] = m.Pending.Len() + m.Deferred.Len()
	counted[SharedClaims], there[SharedClaims] = m.Store.Beyond()
	for class, busy := range m.Busy() {
		counted[SharedBusy] += int(busy)
		offers, places := m.Deferred.CountOf(class)
		counted[SharedOffers] += offers
		counted[SharedLocations] += places
	}
	return counted, there
}

package rank

// Indices of the resources that are divided between fairness classes.
const (
	SharedAsks      = iota // pending allocation requests
	SharedWords            // done messages to be sent
	SharedHosts            // addresses to which done messages are sent
	SharedOffers           // deferred offers
	SharedLocations        // locations of chunks of deferred offers
	SharedBusy             // rows that keep a peer's class
	SharedClaims           // claims beyond the first on a page
	Shared
)

// Shares returns, for each of these resources, the sum of what the classes are counted to use, and what the tables
// really contain. Tests and oracles check that the two agree.
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

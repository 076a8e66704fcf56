package rank

// Indices of the resources that are divided between fairness classes.
const (
	SharedRequests     = iota // pending allocation requests
	SharedDoneMessages        // done messages to be sent
	SharedDoneAddrs           // addresses to which done messages are sent
	SharedOffers              // deferred offers
	SharedLocations           // locations of chunks of deferred offers
	SharedClassRows           // rows that keep a peer's class
	SharedClaims              // claims beyond the first on a page
	SharedCount
)

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
	return counted, actual
}

package put

// A State is the state of a put, for statistics about what was tried. No decision depends on it.
type State uint8

// States of puts, of either flow. A put that has its outcome stays until nothing touches its pages and its peer has
// been notified of all that it has to know. Meanwhile the put passes through the same states, as a delivered put.
const (
	NoRow State = iota // the put no longer exists, or never did
	Waiting
	Requesting
	Writing
	Settling
	Committing
	Confirming
	Offering
	Offered
	delivered
)

// StateNames returns the names of the states, in their order.
func StateNames() []string {
	return []string{"gone",
		"put waiting", "put requesting", "put writing", "put settling", "put committing", "put confirming",
		"put offering", "put offered",
		"delivered put waiting", "delivered put requesting", "delivered put writing", "delivered put settling",
		"delivered put committing", "delivered put confirming", "delivered put offering", "delivered put offered"}
}

// StateAt returns the state of a put that is in this phase of its flow.
func (r *Row) StateAt(phase State) State {
	if r.IsDelivered() {
		return phase + delivered - Waiting
	}
	return phase
}

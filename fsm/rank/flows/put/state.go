package put

// A State is where a put stands, for those who count what was tried. It decides nothing.
type State uint8

// States of puts, of either flow. A put that has its outcome stays until nothing touches its pages and its peer knows
// what it has to: it goes on through the same states, as a delivered one.
const (
	Gone State = iota // what was meant is no more, or never was
	Waiting
	Asking
	Moving
	Settling
	Committing
	Confirming
	Offering
	Offered
	delivered
)

// StateNames are the names of the states, in their order.
func StateNames() []string {
	return []string{"gone",
		"put waiting", "put asking", "put moving", "put settling", "put committing", "put confirming",
		"put offering", "put offered",
		"delivered put waiting", "delivered put asking", "delivered put moving", "delivered put settling",
		"delivered put committing", "delivered put confirming", "delivered put offering", "delivered put offered"}
}

// State is that of a put that is in a phase of its flow.
func (r *Row) State(phase State) State {
	if r.Delivered() {
		return phase + delivered - Waiting
	}
	return phase
}

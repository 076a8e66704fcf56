package sim

// communicatorScopes are small worlds whose plane is of communicators.
func communicatorScopes() []Scope {
	one := []ScopeJob{{Chunks: []int{1}}}
	return []Scope{
		{Name: "communicator", About: "one chunk by a communicator", Leased: true, Communicators: true, Jobs: one},
		{Name: "communicator-cut", About: "one chunk by a communicator, one connection or link breaks", Leased: true,
			Communicators: true, Jobs: one, Faults: 1, Cut: true},
	}
}

package scopes

import "github.com/kvferry/kvferry/sim/explore"

// communicatorScopes returns the scopes that use a plane of communicators.
func communicatorScopes() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	return []explore.Scope{
		{Name: "communicator", Description: "one chunk is pushed over a communicator", Leased: true, Communicators: true, Jobs: one},
		{Name: "communicator-cut", Description: "one chunk is pushed over a communicator, and a connection or a link breaks", Leased: true,
			Communicators: true, Jobs: one, Faults: 1, Cut: true},
	}
}

package scopes

import "github.com/kvferry/kvferry/sim/explore"

// communicators returns the scopes that use a plane of communicators.
func communicators() []explore.Scope {
	one := []explore.Job{{Chunks: []int{1}}}
	return []explore.Scope{
		{Name: "communicator", About: "one chunk is pushed over a communicator", Leased: true, Communicators: true, Jobs: one},
		{Name: "communicator-cut", About: "one chunk is pushed over a communicator, and a connection or a link breaks", Leased: true,
			Communicators: true, Jobs: one, Faults: 1, Cut: true},
	}
}

package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/condense"
)

// Mixed is the profile of campaigns that go through all others: each of its seeds is that seed of one of them, which
// [ProfileOf] names. So a campaign of a minute meets what any profile draws.
const Mixed = "all"

// small is how many of four seeds are of the smallest worlds: those of other profiles take five times as long.
const small = 3

// turns are the others, in their order. Left out is what takes as long as hundreds of them.
func turns() []string {
	return slices.DeleteFunc(Profiles(), func(name string) bool { return name == condense.Profile || name == "fleet" })
}

// ProfileOf is the profile of a seed in a campaign of this one: itself, unless it is [Mixed].
func ProfileOf(seed uint64, profile string) string {
	if profile != Mixed {
		return profile
	}
	round, at := seed/4, seed%4
	if at < small {
		return condense.Profile
	}
	others := turns()
	return others[round%uint64(len(others))]
}

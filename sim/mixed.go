package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/condense"
)

// Mixed is the profile of campaigns that use all other profiles. Each seed of such a campaign is a seed of one of the
// other profiles, which [ProfileOf] names. A campaign of a minute therefore reaches what every profile draws.
const Mixed = "all"

// small is the number of seeds, out of four, that use the profile of the smallest worlds. Seeds of the other profiles
// take five times as long.
const small = 3

// turns returns the other profiles, in order. The profile of the smallest worlds is left out because [ProfileOf] uses
// it directly. The profile fleet is left out because one of its seeds takes as long as hundreds of others.
func turns() []string {
	return slices.DeleteFunc(Profiles(), func(name string) bool { return name == condense.Profile || name == "fleet" })
}

// ProfileOf returns the profile of a seed in a campaign of the given profile: the profile itself, unless it is [Mixed].
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

package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/condense"
)

// MixedProfile is the profile of campaigns that use all further profiles. Each seed of a mixed campaign is a seed of
// the profile that [ProfileOfSeed] returns. A campaign of a minute therefore reaches what every profile draws.
const MixedProfile = "all"

// tinyPerFour is the number of seeds, out of four, that use the profile of the smallest worlds. Seeds of the remaining
// profiles take five times as long.
const tinyPerFour = 3

// mixedProfiles returns the remaining profiles, in order. The profile of the smallest worlds is left out because
// [ProfileOfSeed] uses that profile directly. The profile fleet is left out because a seed of fleet takes as long as
// hundreds of ordinary seeds.
func mixedProfiles() []string {
	return slices.DeleteFunc(Profiles(), func(name string) bool { return name == condense.Profile || name == "fleet" })
}

// ProfileOfSeed returns the profile of a seed in a campaign of the given profile: the profile itself, unless the
// profile is [MixedProfile].
func ProfileOfSeed(seed uint64, profile string) string {
	if profile != MixedProfile {
		return profile
	}
	round, at := seed/4, seed%4
	if at < tinyPerFour {
		return condense.Profile
	}
	profiles := mixedProfiles()
	return profiles[round%uint64(len(profiles))]
}

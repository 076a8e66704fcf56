package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/condense"
	"github.com/kvferry/kvferry/sim/expand"
)

// MixedProfile is the profile of campaigns that use all further profiles. Each seed of a mixed campaign is a seed of
// the profile that [ProfileOfSeed] returns. A campaign of a minute therefore reaches what every profile draws.
const MixedProfile = "all"

// tinyPerFour is the number of seeds, out of four, that use the profile of the smallest worlds. Seeds of the remaining
// profiles take five times as long.
const tinyPerFour = 2

// expensiveProfiles are the profiles whose seeds take five to twenty times as long as those of other profiles. If each
// had as many seeds as another, they would take more than half of a campaign's time.
//
//kvferry:table
var expensiveProfiles = []string{"directory", "replicas", "sought"}

// trustEvery is the number of seeds of which one uses the profile in which processes prove identities. That profile has
// seeds of its own, so that the other seeds use the profiles that they used before it existed.
const trustEvery = 16

// The same for the profiles in which engines state checksums, chunks have tenants, and strangers are of other domains.
const (
	sumsEvery    = 32
	tenantsEvery = 64
	domainsEvery = 128
)

// mixedProfiles returns the remaining profiles, in the order of the seeds that use them: each expensive profile once,
// and each other profile as often as there are expensive ones. The profile of the smallest worlds is left out because
// [ProfileOfSeed] uses that profile directly. The profile fleet is left out because a seed of fleet takes as long as
// hundreds of ordinary seeds.
func mixedProfiles() (order []string) {
	cheap := slices.DeleteFunc(Profiles(), func(name string) bool {
		return name == condense.Profile || name == "fleet" || name == expand.TrustProfile || name == expand.SumsProfile ||
			name == expand.TenantsProfile || name == expand.DomainsProfile || slices.Contains(expensiveProfiles, name)
	})
	for _, expensive := range expensiveProfiles {
		order = append(append(order, cheap...), expensive)
	}
	return order
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
	if seed%trustEvery == trustEvery-1 {
		if seed%domainsEvery == domainsEvery-1 {
			return expand.DomainsProfile
		}
		if seed%sumsEvery == sumsEvery-1 {
			return expand.SumsProfile
		}
		if seed%tenantsEvery == trustEvery-1 {
			return expand.TenantsProfile
		}
		return expand.TrustProfile
	}
	profiles := mixedProfiles()
	return profiles[round%uint64(len(profiles))]
}

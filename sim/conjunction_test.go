package sim

import (
	"testing"

	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// The profiles in which a conjunction can be reached exist.
func TestConjunctionsNameProfiles(t *testing.T) {
	for _, c := range Conjunctions() {
		for _, profile := range pd.ConjunctionInfo[c].Profiles {
			if err := systems.CheckProfile(profile); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
}

// Package systems lists the flows that the simulator runs in addition to prefill and decode, and combines their
// profiles and their scopes with those of prefill and decode. A new flow adds a line to [Flows].
package systems

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/condense"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/agent"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
	"github.com/kvferry/kvferry/sim/systems/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/systems/pd/scopes"
	"github.com/kvferry/kvferry/sim/systems/recall"
	"github.com/kvferry/kvferry/sim/systems/register"
)

// Flows lists all flows.
var Flows = pd.Flows{&recall.Flow, &p2p.Flow, &layerwise.Flow, &register.Flow, &agent.Flow}

// Profiles returns the names that [Expand] accepts.
func Profiles() []string {
	all := slices.Clone(expand.Profiles)
	for _, f := range Flows {
		for i := range f.Profiles {
			all = append(all, f.Profiles[i].Name)
		}
	}
	return append(all, condense.Profile, expand.TrustProfile, expand.SumsProfile, expand.TenantsProfile, expand.DomainsProfile)
}

// CheckProfile returns an error if the name is not in [Profiles]. The empty name stands for the default profile.
func CheckProfile(profile string) error {
	if profile != "" && !slices.Contains(Profiles(), profile) {
		return fmt.Errorf("sim: profile %q is unknown: use one of %s", profile, strings.Join(Profiles(), ", "))
	}
	return nil
}

// Expand draws the plan of a seed. It returns an error if the profile does not exist.
func Expand(seed uint64, profile string) (plan.Plan, error) {
	if err := CheckProfile(profile); err != nil {
		return plan.Plan{}, err
	}
	switch profile {
	case "":
		profile = expand.DefaultProfile
	case condense.Profile:
		base := condense.BaseProfile(seed)
		p, err := Expand(seed, base)
		condense.Plan(&p)
		if f := profileOfFlow(base); f != nil && f.AfterCondense != nil {
			f.AfterCondense(&p)
		}
		return p, err
	}
	if profile == expand.TrustProfile {
		base := expand.TrustBase(seed)
		p := expand.Plan(seed, base, profileOfFlow(base))
		expand.AddTrust(&p)
		return p, nil
	}
	if profile == expand.SumsProfile {
		base := expand.SumsBase(seed)
		p := expand.Plan(seed, base, profileOfFlow(base))
		expand.AddSums(&p)
		return p, nil
	}
	if profile == expand.TenantsProfile {
		base := expand.TenantsBase(seed)
		p := expand.Plan(seed, base, profileOfFlow(base))
		expand.AddTrust(&p)
		expand.AddTenants(&p)
		return p, nil
	}
	if profile == expand.DomainsProfile {
		base := expand.DomainsBase(seed)
		p := expand.Plan(seed, base, profileOfFlow(base))
		expand.AddTrust(&p)
		expand.AddDomains(&p)
		return p, nil
	}
	return expand.Plan(seed, profile, profileOfFlow(profile)), nil
}

// profileOfFlow returns the profile with a name if a flow adds it, or nil.
func profileOfFlow(name string) *expand.Profile {
	for _, f := range Flows {
		for i := range f.Profiles {
			if f.Profiles[i].Name == name {
				return &f.Profiles[i]
			}
		}
	}
	return nil
}

// Scopes returns the scopes of all small worlds, sorted by name.
func Scopes() []explore.Scope {
	all := scopes.List()
	for _, f := range Flows {
		if f.Scopes != nil {
			all = append(all, f.Scopes()...)
		}
	}
	slices.SortFunc(all, func(a, b explore.Scope) int { return strings.Compare(a.Name, b.Name) })
	return all
}

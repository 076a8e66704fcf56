package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/directory"
	"github.com/kvferry/kvferry/sim/systems/p2p"
)

// builtinSystems lists the systems that come with the simulator and do not consist of ranks alone. A profile, or a plan
// that names the system, selects the system, so that the options need not contain a system.
var ours = []ofOurs{
	{directory.System.Name, (*System)(&directory.System)},
	{directory.Replicas.Name, (*System)(&directory.Replicas)},
	{directory.Fleet.Name, (*System)(&directory.Fleet)},
	{"sought", new(Join(PD(), System(p2p.Directories)))},
}

// ofOurs is a system of this list with the profile that selects it.
type ofOurs struct {
	profile string
	*System
}

// isOurs reports whether a system is one of ours.
func isOurs(s *System) bool {
	return slices.ContainsFunc(ours, func(x ofOurs) bool { return x.System == s })
}

// named returns the system that a profile or a plan selects if none is given; nil means PD.
func (s *System) named(name string) *System {
	for _, x := range ours {
		if s == nil && (x.Name == name || x.profile == name) {
			return x.System
		}
	}
	return s
}

// Profiles returns the names that [Expand] accepts: the profiles of ranks and the profiles of the remaining systems
// that come with the simulator.
func Profiles() []string {
	all := systems.Profiles()
	for _, s := range ours {
		all = append(all, s.profile)
	}
	return all
}

// CheckProfile returns an error if a name is not one of Profiles. The empty name is the default profile.
func CheckProfile(profile string) error {
	if (*System)(nil).named(profile) != nil {
		return nil
	}
	return systems.CheckProfile(profile)
}

// Expand draws the plan of a seed: see [systems.Expand]. Expand returns an error if the profile does not exist.
func Expand(seed uint64, profile string) (plan.Plan, error) {
	return (*System)(nil).named(profile).Expand(seed, profile)
}

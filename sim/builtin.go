package sim

import (
	"slices"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/directory"
	"github.com/kvferry/kvferry/sim/systems/gateway"
	"github.com/kvferry/kvferry/sim/systems/p2p"
)

// builtinSystems lists the systems that come with the simulator and do not consist of ranks alone. A profile, or a plan
// that names the system, selects the system, so that the options need not contain a system.
var builtinSystems = []builtinSystem{
	{directory.System.Name, (*System)(&directory.System)},
	{directory.Replicas.Name, (*System)(&directory.Replicas)},
	{directory.Fleet.Name, (*System)(&directory.Fleet)},
	{gateway.System.Name, (*System)(&gateway.System)},
	{"sought", new(Join(PD(), System(p2p.Directories)))},
}

// builtinSystem is a system of this list with the profile that selects it.
type builtinSystem struct {
	profile string
	*System
}

// isBuiltin reports whether a system is one of ours.
func isBuiltin(s *System) bool {
	return slices.ContainsFunc(builtinSystems, func(x builtinSystem) bool { return x.System == s })
}

// orBuiltin returns the system that a profile or a plan selects if none is given; nil means PD.
func (s *System) orBuiltin(name string) *System {
	for _, x := range builtinSystems {
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
	for _, s := range builtinSystems {
		all = append(all, s.profile)
	}
	return all
}

// CheckProfile returns an error if a name is not one of Profiles. The empty name is the default profile.
func CheckProfile(profile string) error {
	if (*System)(nil).orBuiltin(profile) != nil {
		return nil
	}
	return systems.CheckProfile(profile)
}

// Expand draws the plan of a seed: see [systems.Expand]. Expand returns an error if the profile does not exist.
func Expand(seed uint64, profile string) (plan.Plan, error) {
	return (*System)(nil).orBuiltin(profile).Expand(seed, profile)
}

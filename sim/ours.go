package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/directory"
	"github.com/kvferry/kvferry/sim/systems/own"
	"github.com/kvferry/kvferry/sim/systems/p2p"
)

// ours lists the systems that come with the simulator and do not consist of ranks alone. Each system is selected by its
// profile, or by a plan that names it, so that the options need not contain it.
var ours = []ofOurs{
	{directory.System.Name, systemOf(&directory.System)},
	{directory.Replicas.Name, systemOf(&directory.Replicas)},
	{directory.Fleet.Name, systemOf(&directory.Fleet)},
	{"sought", beside("p2p", systemOf(&p2p.Directories))},
}

// ofOurs is a system of this list with the profile that selects it.
type ofOurs struct {
	profile string
	*System
}

// beside joins a system with ranks. The plan of the ranks is drawn with the profile ranks.
func beside(ranks string, s *System) *System {
	j := Join(PD(), *s)
	j.ranks = ranks
	return &j
}

// isOurs reports whether a system is one of ours.
func isOurs(s *System) bool {
	return slices.ContainsFunc(ours, func(x ofOurs) bool { return x.System == s })
}

// systemOf converts a system of package own to the type that users provide.
func systemOf(x *own.System) *System {
	s := &System{Name: x.Name, Do: x.Do, Oracles: x.Oracles, Facts: x.Facts, Legible: x.Legible, Patience: x.Patience,
		DriftPPM: x.DriftPPM}
	s.Draw = func(d Draws, p *plan.Plan) { x.Draw(d, p) }
	s.Nodes = func(p *plan.Plan) (all []Process) {
		for _, n := range x.Nodes(p) {
			all = append(all, Process{Name: n.Name, Serves: n.Serves, New: func(b Boot) (effects.Machine, error) {
				return n.New(own.Boot{Seed: b.Seed, Plan: b.Plan, Addr: b.Addr})
			}})
		}
		return all
	}
	return s
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

// Profiles returns the names that [Expand] accepts: the profiles of ranks and those of the other systems that come with
// the simulator.
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

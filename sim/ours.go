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

// ours are systems that come with the simulator and are not ranks alone. Each is a profile, and what plans that name it
// are for: nobody need give it in options.
var ours = []ofOurs{
	{directory.System.Name, systemOf(&directory.System)},
	{directory.Replicas.Name, systemOf(&directory.Replicas)},
	{directory.Fleet.Name, systemOf(&directory.Fleet)},
	{"sought", beside("p2p", systemOf(&p2p.Directories))},
}

// ofOurs is one of them, and the profile that it is.
type ofOurs struct {
	profile string
	*System
}

// beside is a system that ranks stand beside, which are drawn as a profile of theirs.
func beside(ranks string, s *System) *System {
	j := Join(PD(), *s)
	j.ranks = ranks
	return &j
}

// isOurs says whether a system is among them.
func isOurs(s *System) bool {
	return slices.ContainsFunc(ours, func(x ofOurs) bool { return x.System == s })
}

// systemOf is one as users give theirs.
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

// named is the system that a profile, or a plan, means where none is given; nil: PD.
func (s *System) named(name string) *System {
	for _, x := range ours {
		if s == nil && (x.Name == name || x.profile == name) {
			return x.System
		}
	}
	return s
}

// Profiles are the names that [Expand] takes: those of ranks, and systems of ours without.
func Profiles() []string {
	all := systems.Profiles()
	for _, s := range ours {
		all = append(all, s.profile)
	}
	return all
}

// CheckProfile refuses a name that is none of Profiles; empty is the default.
func CheckProfile(profile string) error {
	if (*System)(nil).named(profile) != nil {
		return nil
	}
	return systems.CheckProfile(profile)
}

// Expand draws the plan of a seed: see [systems.Expand]. The error tells of a profile that does not exist.
func Expand(seed uint64, profile string) (plan.Plan, error) {
	return (*System)(nil).named(profile).Expand(seed, profile)
}

package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A System describes what runs in a world: the user's machines, the commands that their engines give, and the promises
// that they keep. [custom.System] has its fields. The options of [Run], [Campaign], [Shrink], [Explore] and the
// remaining entry points contain a system; nil there means [PD].
type System custom.System

// The parts of the description of a system; see package custom.
type (
	Process = custom.Process
	Boot    = custom.Boot
	Draws   = custom.Draws
)

// nodeNameError is the panic value of Boot.Addr and Draws.Items.
type nodeNameError struct{ error }

// PD returns the prefill-decode system: ranks, engines, a proxy, and the promises of docs/safety.md. Its description is
// only its name.
func PD() System { return System{Name: plan.PD} }

// isPD reports whether the system is PD alone.
func (s *System) isPD() bool { return s == nil || s.Name == plan.PD && s.Processes == nil }

// hasRanks reports whether PD is the system or one of its parts.
func (s *System) hasRanks() bool { return s == nil || slices.ContainsFunc(s.parts(), (*System).isPD) }

// Join combines systems in one world: one plan, the nodes of all systems (those of PD first), and the faults and
// oracles of all. The draws of each system are the same as in a run of that system alone, except for the numbers of the
// nodes.
func Join(systems ...System) System {
	joined := System{}
	var names []string
	for i := range systems {
		for _, part := range systems[i].parts() {
			if part.isPD() {
				joined.Parts = slices.Insert(joined.Parts, 0, custom.System(*part))
			} else {
				joined.Parts = append(joined.Parts, custom.System(*part))
			}
		}
	}
	for i := range joined.Parts {
		names = append(names, joined.Parts[i].Name)
	}
	joined.Name = strings.Join(names, "+")
	return joined
}

// parts returns the systems of a join, or the system itself.
func (s *System) parts() []*System {
	if len(s.Parts) == 0 {
		return []*System{s}
	}
	var all []*System
	for i := range s.Parts {
		all = append(all, (*System)(&s.Parts[i]))
	}
	return all
}

// customParts returns the systems of a join, or the system itself, without PD.
func (s *System) customParts() []*System {
	return slices.DeleteFunc(s.parts(), (*System).isPD)
}

var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// checkParts returns an error if the system is invalid, whatever its plans contain.
func (s *System) checkParts() error {
	seen, pds := map[string]bool{}, 0
	for _, part := range s.parts() {
		switch {
		case part.isPD():
			if pds++; pds > 1 {
				return fmt.Errorf("sim: system: PD is joined twice: join it once")
			}
		case !validName.MatchString(part.Name) || part.Name == plan.PD:
			return fmt.Errorf("sim: system: name is %q: use letters and digits, and not pd, which is reserved", part.Name)
		case seen[part.Name]:
			return fmt.Errorf("sim: system: %s is joined twice: each system needs a different name", part.Name)
		case part.Processes == nil:
			return fmt.Errorf("sim: system %s: Processes is nil: set a function that returns the processes", part.Name)
		}
		seen[part.Name] = true
	}
	return nil
}

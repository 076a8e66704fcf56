package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/own"
)

// A System describes what runs in a world: the user's machines, the commands that their engines give, and the promises
// that they keep. [own.System] has its fields. The options of [Run], [Campaign], [Shrink], [Explore] and the remaining
// entry points contain a system; nil there means [PD].
type System own.System

// The parts of the description of a system; see package own.
type (
	Process = own.Process
	Boot    = own.Boot
	Draws   = own.Draws
)

// noNode is the panic value of Boot.Addr and Draws.Items.
type noNode struct{ error }

// PD returns the prefill-decode system: ranks, engines, a proxy, and the promises of docs/safety.md. Its description is
// only its name.
func PD() System { return System{Name: plan.PD} }

// isPD reports whether the system is PD alone.
func (s *System) isPD() bool { return s == nil || s.Name == plan.PD && s.Nodes == nil }

// hasRanks reports whether PD is the system or one of its parts.
func (s *System) hasRanks() bool { return s == nil || slices.ContainsFunc(s.all(), (*System).isPD) }

// Join combines systems in one world: one plan, the nodes of all systems (those of PD first), and the faults and
// oracles of all. The draws of each system are the same as in a run of that system alone, except for the numbers of the
// nodes.
func Join(systems ...System) System {
	j := System{}
	var names []string
	for i := range systems {
		for _, part := range systems[i].all() {
			if part.isPD() {
				j.Parts = slices.Insert(j.Parts, 0, own.System(*part))
			} else {
				j.Parts = append(j.Parts, own.System(*part))
			}
		}
	}
	for i := range j.Parts {
		names = append(names, j.Parts[i].Name)
	}
	j.Name = strings.Join(names, "+")
	return j
}

// all returns the systems of a join, or the system itself.
func (s *System) all() []*System {
	if len(s.Parts) == 0 {
		return []*System{s}
	}
	var all []*System
	for i := range s.Parts {
		all = append(all, (*System)(&s.Parts[i]))
	}
	return all
}

// machines returns the systems of a join, or the system itself, without PD.
func (s *System) machines() []*System {
	return slices.DeleteFunc(s.all(), (*System).isPD)
}

var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// check returns an error if the system is invalid, whatever its plans contain.
func (s *System) check() error {
	seen, pds := map[string]bool{}, 0
	for _, part := range s.all() {
		switch {
		case part.isPD():
			if pds++; pds > 1 {
				return fmt.Errorf("sim: system: PD is joined twice: give it once")
			}
		case !nameForm.MatchString(part.Name) || part.Name == plan.PD:
			return fmt.Errorf("sim: system: name is %q: give letters and digits, and not pd, which is another's", part.Name)
		case seen[part.Name]:
			return fmt.Errorf("sim: system: %s is joined twice: give each a name of its own", part.Name)
		case part.Nodes == nil:
			return fmt.Errorf("sim: system %s: nodes is nil: give a function that says which processes there are", part.Name)
		}
		seen[part.Name] = true
	}
	return nil
}

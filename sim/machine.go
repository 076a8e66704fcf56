package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// A System describes what runs in a world: the user's machines, the commands that their engines give, and the promises
// that they keep. [Run], [Campaign], [Shrink], [Explore] and the other entry points take a system in their options; nil
// there means [PD]. The functions of a system may be called by several runs at the same time and must keep no state.
//
// The machines receive everything that the world offers to an [effects.Machine]: connections, requests and replies,
// clocks that drift, and all faults of processes and networks. They have no pages, so an effect that needs a data plane
// breaks the contract. Each command must get its outcome, an [effects.Deliver], once faults have ended.
//
// A machine may also have a method Tables(visit func(name string, n, most int)). None of the tables that it visits may
// ever hold more than most entries, and none may hold any entry once the run has come to rest. A method Remembers with
// the same signature visits the tables that may keep entries at rest.
type System struct {
	// Name appears in plans and identifies the system's draws. It consists of letters and digits.
	Name string
	// Nodes returns the processes of a plan, at least one. Equal plans must have equal processes.
	Nodes func(p *plan.Plan) []Process
	// Do creates the commands that engines give, by the name of the command in the items of plans.
	Do map[string]func(Item) effects.CommandBody
	// Draw draws the items of a seed and may change the rest of the plan, which is already drawn. Nil: there are no
	// items.
	Draw func(d Draws, p *plan.Plan)
	// Oracles judge each run.
	Oracles []oracle.Oracle
	// Facts holds the names of FactOther and the facts after it, for logs and stories.
	Facts []string
	// Legible reports whether bytes are a well-formed message of this system. A corrupted message is never well-formed,
	// because it would otherwise be a lie of a peer and not damage. If Legible is nil, no message is ever corrupted.
	Legible func(body []byte) bool
	// Patience is the longest time that a command may take after all faults have ended; 0 means ten seconds.
	Patience time.Duration
	// DriftPPM is the largest rate by which a seed lets clocks run fast or slow, in parts per million; 0 means 200.
	// Beside ranks, clocks stay within the bounds of the ranks' leases.
	DriftPPM int

	pd    bool
	ranks string   // the profile of the ranks that run beside the system; empty: the requested profile
	parts []System // the systems of a [Join]
}

// A Process is a node. Its machine is created anew for each incarnation.
type Process struct {
	// Name is the name of the process. The name must not be n0, n1 and so on, which are the names of nodes in plans.
	Name string
	// Serves lists the channels on which the process listens. One of all processes may serve ChannelProxy; it then
	// takes the place of PD's proxy.
	Serves []effects.Channel
	// New creates the machine of an incarnation.
	New func(b Boot) (effects.Machine, error)
}

// Boot is the information that a machine receives when an incarnation starts.
type Boot struct {
	Name string       // of the process
	Life uint32       // the number of earlier incarnations of the process
	Seed uint64       // for the machine's own random choices; different in each incarnation
	Now  effects.Time // by the clock of the node
	Plan *plan.Plan   // read-only
	// at returns the address of a node, or an error about the name or the channel.
	at func(node string, ch effects.Channel) (effects.Addr, error)
}

// Addr returns the address at which a node listens on a channel. The node is given by the name of its process, or as
// n0, n1 and so on. Addr panics if no node has that name, or if the process does not serve the channel. A panic in New
// ends the run with an error that describes the mistake.
func (b *Boot) Addr(node string, ch effects.Channel) effects.Addr {
	a, err := b.at(node, ch)
	if err != nil {
		panic(noNode{fmt.Errorf("Boot.Addr: %w", err)})
	}
	return a
}

// noNode is the panic value of Boot.Addr and Draws.Items.
type noNode struct{ error }

// PD returns the prefill-decode system: ranks, engines, a proxy, and the promises of docs/safety.md.
func PD() System { return System{Name: pd.System.Name, pd: true} }

// Join combines systems in one world: one plan, the nodes of all systems (those of PD first), and the faults and
// oracles of all. The draws of each system are the same as if it ran alone, except for the numbers of its nodes.
func Join(systems ...System) System {
	j := System{}
	var names []string
	for _, s := range systems {
		for _, part := range s.all() {
			if part.pd {
				j.pd = true
				j.parts = slices.Insert(j.parts, 0, part)
			} else {
				j.parts = append(j.parts, part)
			}
		}
	}
	for i := range j.parts {
		names = append(names, j.parts[i].Name)
	}
	j.Name = strings.Join(names, "+")
	return j
}

// all returns the systems of a join, or the system itself.
func (s *System) all() []System {
	if len(s.parts) > 0 {
		return s.parts
	}
	return []System{*s}
}

// plain reports whether the system is PD alone.
func (s *System) plain() bool { return s == nil || s.pd && len(s.parts) <= 1 }

var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// check returns an error if the system is invalid, whatever its plans contain.
func (s *System) check() error {
	seen, pds := map[string]bool{}, 0
	for _, part := range s.all() {
		switch {
		case part.pd:
			if pds++; pds > 1 {
				return fmt.Errorf("sim: system: PD is joined twice: give it once")
			}
		case !nameForm.MatchString(part.Name) || part.Name == pd.System.Name:
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

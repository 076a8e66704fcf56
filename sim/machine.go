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

// A System is what runs in a world: machines of somebody's own, what their engines want of them, and what they promise.
// [Run], [Campaign], [Shrink], [Explore] and the rest take one in their options; nil there is [PD]. Its functions may
// be called by several runs at once and remember nothing.
//
// Its machines get whatever an [effects.Machine] gets of the world: connections, requests and replies, clocks that
// drift, and all faults of processes and networks. They have no pages, so an effect that needs a data plane breaks
// the contract. Each command must have its outcome, a [effects.Deliver], once faults have ended.
//
// A machine may also have a method Tables(visit func(name string, n, most int)): none of them ever holds more than
// most, and none holds anything after all has come to rest. What it may keep then a method Remembers shows likewise.
type System struct {
	// Name stands in plans, and its draws are keyed by it: letters and digits.
	Name string
	// Nodes are the processes of a plan, at least one; equal plans have equal ones.
	Nodes func(p *plan.Plan) []Process
	// Do makes the commands that engines give, by the name that items of plans have for them.
	Do map[string]func(Item) effects.CommandBody
	// Draw draws for a seed what engines want; nil: nothing. The rest of the plan is drawn: it may be changed.
	Draw func(d Draws, p *plan.Plan)
	// Oracles judge each run.
	Oracles []oracle.Oracle
	// Facts are the names of FactOther and those that follow, in logs and stories.
	Facts []string
	// Legible says whether bytes are a message of this system that could be meant. Corrupted ones never are, or they
	// would be lies of a peer. Nil: none is ever corrupted.
	Legible func(body []byte) bool
	// Patience is how long a command may go on after all faults have ended; 0: ten seconds.
	Patience time.Duration
	// DriftPPM is the most that a seed has clocks run fast or slow, in parts per million; 0: 200. Beside ranks clocks
	// stay within what leases of theirs bear.
	DriftPPM int

	pd    bool
	ranks string   // the profile that ranks beside it are drawn as; empty: the one that is asked for
	parts []System // of a join
}

// A Process is one node: a machine that is made anew for each life of it.
type Process struct {
	Name   string            // not n0 and so on, which is what plans call it
	Serves []effects.Channel // on which it listens; one of all processes may serve ChannelProxy, and is PD's proxy then
	New    func(b Boot) (effects.Machine, error)
}

// Boot is what a machine may know as it begins.
type Boot struct {
	Name string       // of its process
	Life uint32       // how often that was started before
	Seed uint64       // for what it draws itself; another one in each life
	Now  effects.Time // by its clock
	Plan *plan.Plan   // it is only read
	// at returns the address of a node, or what is wrong with the name or the channel.
	at func(node string, ch effects.Channel) (effects.Addr, error)
}

// Addr returns where a node listens on a channel, by the name of its process, or n0 and so on. It panics if no node has
// that name, or the process does not serve the channel; a panic of New ends the run with an error that says so.
func (b *Boot) Addr(node string, ch effects.Channel) effects.Addr {
	a, err := b.at(node, ch)
	if err != nil {
		panic(noNode{fmt.Errorf("Boot.Addr: %w", err)})
	}
	return a
}

// noNode is the panic of Boot.Addr and Draws.Items.
type noNode struct{ error }

// PD is prefill and decode: ranks, engines, a proxy, and the promises of docs/safety.md.
func PD() System { return System{Name: pd.System.Name, pd: true} }

// Join is systems side by side: one plan, the nodes of all, those of PD first, the faults and the oracles of all. What
// is drawn for one is what is drawn for it alone, but for the numbers of its nodes.
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

// all are the systems of a join, or the one itself.
func (s *System) all() []System {
	if len(s.parts) > 0 {
		return s.parts
	}
	return []System{*s}
}

// plain says whether it is PD and nothing else.
func (s *System) plain() bool { return s == nil || s.pd && len(s.parts) <= 1 }

var nameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// check says what is wrong with a system, however its plans look.
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

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/gateway"
	"github.com/kvferry/kvferry/sim/systems/pd/scopes"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// Scopes returns all scopes, ordered by name.
func Scopes() []Scope {
	all := systems.Scopes()
	for _, s := range gateway.Scopes() {
		s.System = (*System)(&gateway.System)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Scope) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// FindScope returns the scope of the given name. The error lists all names.
func FindScope(name string) (Scope, error) {
	var names []string
	for _, s := range Scopes() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scope{}, fmt.Errorf("sim: scope %q is unknown: use one of %s", name, strings.Join(names, ", "))
}

// Explore tries every order in which things can happen in a scope: see [explore.Explore].
func Explore(o ExploreOptions) (Exploration, error) {
	o.Scope = withSystem(o.Scope)
	return explore.Explore(o)
}

// RetracePath repeats the run that a path describes: see [explore.RetracePath].
func RetracePath(s Scope, p Path, log func(string)) (*Violation, error) {
	return explore.RetracePath(withSystem(s), p, log)
}

// withSystem returns the scope, with PD as the system if the scope names no system.
func withSystem(s Scope) Scope {
	if s.System == nil {
		s.System = new(PD())
	}
	return s
}

// NewRun creates the world of a scope, for [Explore].
func (s *System) NewRun(o *Scope) (explore.Run, error) {
	p := scopes.NewPlan(o)
	if !s.isPD() {
		p.System, p.Items = s.Name, slices.Clone(o.Items)
		for i := range p.Items { // The explorer orders the items, so their instants do not matter.
			p.Items[i].At = 0
			if p.Items[i].Span == 0 {
				p.Items[i].Span = time.Duration(explore.Unit)
			}
		}
	}
	if err := s.Check(p); err != nil {
		return nil, fmt.Errorf("sim: scope %s: %w", o.Name, err)
	}
	return newTrial(Options{System: s}, p)
}

// NodeName returns the name of a node in scopes.
func (w *trial) NodeName(n *world.Node) string { return nodeNameOf(n) }

// SystemFaults returns the faults that engines can have in addition to the faults of any node.
func (w *trial) SystemFaults(how string) []world.Delivery { return w.Flows.ListFaults(&w.Cluster, how) }

// HashOutstanding hashes what the number c of a machine refers to. Only a user's machine knows the meaning of its
// numbers, so the number itself is hashed.
func (w *trial) HashOutstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr) {
	if n.Custom {
		h.Word(3<<60 | uint64(c))
		return
	}
	w.Cluster.HashOutstanding(h, n, c)
}

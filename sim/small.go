package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd/scopes"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// Scopes returns all scopes, ordered by name.
func Scopes() []Scope { return systems.Scopes() }

// FindScope returns the scope of the given name. The error lists all names.
func ScopeNamed(name string) (Scope, error) {
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
	o.Scope = played(o.Scope)
	return explore.Explore(o)
}

// Retrace repeats the run that a path describes: see [explore.Retrace].
func Retrace(s Scope, p Path, log func(string)) (*Violation, error) {
	return explore.Retrace(played(s), p, log)
}

// withSystem returns the scope, with PD as the system if the scope names no system.
func played(s Scope) Scope {
	if s.System == nil {
		s.System = new(PD())
	}
	return s
}

// Play creates the world of a scope, for [Explore].
func (s *System) Play(o *Scope) (explore.Run, error) {
	p := scopes.Plan(o)
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

// Called returns the name of a node in scopes.
func (w *trial) Called(n *world.Node) string { return called(n) }

// Harms returns the faults that engines can have in addition to the faults of any node.
func (w *trial) Harms(how string) []world.Delivery { return w.Flows.Harms(&w.Cluster, how) }

// Outstanding hashes what the number c of a machine refers to. Only a user's machine knows the meaning of its numbers,
// so the number itself is hashed.
func (w *trial) Outstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr) {
	if n.User {
		h.Word(3<<60 | uint64(c))
		return
	}
	w.Cluster.Outstanding(h, n, c)
}

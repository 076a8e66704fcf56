package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/systems/pd/scopes"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// Scopes returns all scopes, by name.
func Scopes() []Scope { return systems.Scopes() }

// ScopeNamed finds a scope.
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

// Retrace goes a path once more: see [explore.Retrace].
func Retrace(s Scope, p Path, log func(string)) (*Violation, error) {
	return explore.Retrace(played(s), p, log)
}

// played is a scope with the system that it means.
func played(s Scope) Scope {
	if s.System == nil {
		s.System = &System{Name: pd.System.Name, pd: true}
	}
	return s
}

// Play makes the world of a scope, for [Explore].
func (s *System) Play(o *Scope) (explore.Run, error) {
	p := scopes.Plan(o)
	if !s.plain() {
		p.System, p.Items = s.Name, slices.Clone(o.Items)
		for i := range p.Items { // They come in any order: their instants do not count.
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

// Kinds are the types of a trial's machines, and of what its oracles remember.
func (w *trial) Kinds() explore.Kinds {
	k := w.Cluster.Kinds()
	k.Run = reflect.TypeOf(w)
	for _, n := range w.Nodes {
		if t := reflect.TypeOf(n.Machine); !slices.Contains(k.Machines, t) {
			k.Machines = append(k.Machines, t)
		}
	}
	for i := range w.Panel.States {
		if t := reflect.TypeOf(w.Panel.States[i]); !slices.Contains(k.States, t) {
			k.States = append(k.States, t)
		}
	}
	return k
}

// Called is what scopes call a node.
func (w *trial) Called(n *world.Node) string { return called(n) }

// Harms are what may go wrong with engines in a way of their own.
func (w *trial) Harms(how string) []world.Delivery { return w.Flows.Harms(&w.Cluster, how) }

// Outstanding says what a Corr of a user's machine is for: it alone knows, so the number stands for itself.
func (w *trial) Outstanding(h *snapshot.Hasher, n *world.Node, c effects.Corr) {
	if n.User {
		h.Word(3<<60 | uint64(c))
		return
	}
	w.Cluster.Outstanding(h, n, c)
}

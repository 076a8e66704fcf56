package sim

import (
	"reflect"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Scopes of users' systems.

// items are what engines of a system want in a scope, in any order; their instants do not count.
func (s *Scope) items(p *plan.Plan) {
	if s.System.plain() {
		return
	}
	p.System, p.Items = s.System.Name, slices.Clone(s.Items)
	for i := range p.Items {
		p.Items[i].At = 0
		if p.Items[i].Span == 0 {
			p.Items[i].Span = time.Duration(unit)
		}
	}
}

// mayDie says whether a node may die in a scope.
func (s *Scope) mayDie(n *world.Node) bool {
	if n.User {
		return slices.Contains(s.Crash, user(n).Name)
	}
	return n.Sends() && s.CrashSender || n.Receives() && s.CrashReceiver
}

// kindsOf are the types of a world's machines, and of what its oracles remember.
func kindsOf(w *trial) (machines, states []reflect.Type) {
	machines = []reflect.Type{reflect.TypeFor[*rank.Rank]()}
	for _, n := range w.Nodes {
		if t := reflect.TypeOf(n.Machine); !slices.Contains(machines, t) {
			machines = append(machines, t)
		}
	}
	for i := range w.users {
		if t := reflect.TypeOf(w.users[i].State); !slices.Contains(states, t) {
			states = append(states, t)
		}
	}
	return machines, states
}

// outstandingOwn says what a Corr of a user's machine is for: it alone knows, so the number stands for itself.
func outstandingOwn(c effects.Corr) uint64 { return 3<<60 | uint64(c) }

var stateType = reflect.TypeFor[oracle.State]()

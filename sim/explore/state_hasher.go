package explore

import (
	"reflect"
	"slices"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A stateHasher clones worlds and hashes everything in a world that can still matter. Two rules give equal hashes to
// equal states that were reached in different ways. Instants count from now. A number that drivers assign
// throughout the world (of a connection, ticket, link, request or landing) is hashed as a name in the history of its
// node.
//
// The tag of a field states which part of the field does not matter (package snapshot defines the words of tags), or
// selects a rule below. A field that has neither tag nor rule is hashed unchanged: a new field can make states differ
// unnecessarily, but never makes different states equal. TestTypes verifies that the tags are valid.
type stateHasher struct {
	walker      *snapshot.Walker
	systemTypes SystemTypes
	run         Run          // the run that is being hashed
	w           *world.World // its world
	hasWorkLeft bool         // a node of the world has work left of its last step
}

// ageMax is the greatest age at which an instant can still matter, which is longer than any time span that a scope adds
// to a recorded instant.
const ageMax = int64(nearUnitsMax * Unit)

// newStateHasher returns a hasher for runs of the same types as example.
func newStateHasher(example Run) *stateHasher {
	s := &stateHasher{systemTypes: example.SystemTypes()}
	s.walker = snapshot.New(append(append(s.machineRules(), s.worldRules(example)...), s.nameRules()...)...)
	return s
}

// cloneState returns a copy of a state.
func (s *stateHasher) cloneState(b *state) *state {
	c := snapshot.Clone(s.walker, b)
	c.w = c.run.BaseWorld()
	c.run.DetachClone()
	return c
}

// hashState returns the hash of a state.
func (s *stateHasher) hashState(b *state) uint64 {
	s.run, s.w = b.run, b.w
	s.hasWorkLeft = slices.ContainsFunc(b.w.Nodes, func(n *world.Node) bool { return n.Up && n.Busy })
	return snapshot.Hash(s.walker, b)
}

// ageOf returns an instant relative to now.
func (s *stateHasher) ageOf(at int64) uint64 { return uint64(max(at-s.w.Now, -ageMax)) }

// worldRules returns the rules for the types of a world.
func (s *stateHasher) worldRules(example Run) []snapshot.Rule {
	var machines, states []reflect.Type
	for _, n := range example.BaseWorld().Nodes {
		machines = addTypeOf(machines, n.Machine)
	}
	for _, state := range example.BaseWorld().Panel.States {
		states = addTypeOf(states, state)
	}
	rules := []snapshot.Rule{
		{Type: reflect.TypeFor[effects.CommandBody](), Copy: snapshot.Share}, // borrowed for a step, never changed
		{Type: reflect.TypeFor[Run](), Implementations: []reflect.Type{reflect.TypeOf(example)}},
		{Type: reflect.TypeFor[effects.Machine](), Implementations: machines},
		{Type: reflect.TypeFor[oracle.State](), Implementations: states},
		{Type: reflect.TypeFor[world.Queue](), Hash: s.hashQueue},
		{Word: "bag", Compile: s.compileBag},
		tagRule("instant", s.hashInstant),
	}
	for t, impls := range s.systemTypes.Implementations {
		rules = append(rules, snapshot.Rule{Type: t, Implementations: impls})
	}
	return rules
}

// addTypeOf returns the types with the type of a value, once. The order of the types is part of the hashes.
func addTypeOf(types []reflect.Type, x any) []reflect.Type {
	if t := reflect.TypeOf(x); !slices.Contains(types, t) {
		return append(types, t)
	}
	return types
}

// compileBag returns the hash function of an unordered list. The function leaves out elements to which nothing
// can happen any more.
func (s *stateHasher) compileBag(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	switch t {
	case reflect.TypeFor[[]*world.Conn]():
		return s.hashConns
	case reflect.TypeFor[[]world.Request]():
		return s.hashRequests
	case reflect.TypeFor[[]*world.Link]():
		return s.hashLinks
	case reflect.TypeFor[[]*world.Transfer]():
		return s.hashTransfers
	case reflect.TypeFor[map[effects.GrantID]*world.Grant]():
		return s.hashGrants
	case reflect.TypeFor[[]world.Delivery]():
		return s.hashMissed
	}
	if hashBag := s.systemTypes.Bags[t]; hashBag != nil {
		return func(h *snapshot.Hasher, p unsafe.Pointer) { hashBag(s.w, h, p) }
	}
	panic("BUG: no hash function for an unordered list of type " + t.String())
}

// hashInstant hashes an instant of the world's clock; 0 is none.
func (s *stateHasher) hashInstant(h *snapshot.Hasher, at *int64) {
	if *at != 0 {
		h.Word(s.ageOf(*at))
	} else {
		h.Word(1)
	}
}

// hashConns hashes the connections on which something can still happen.
func (s *stateHasher) hashConns(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Conn)(p)
	HashBag(h, all, func(i int, one *snapshot.Hasher) bool {
		c := all[i]
		if c.Closed && c.PendingCount() == 0 && !c.HasParked() && !s.isInFlight(c) {
			return false
		}
		one.Value(reflect.TypeFor[world.Conn](), unsafe.Pointer(c))
		return true
	})
}

// isInFlight reports whether a message of c is in flight.
func (s *stateHasher) isInFlight(c *world.Conn) bool {
	for _, q := range s.w.Queue.Heap {
		if d := &s.w.Queue.Slab[q.Slot]; (d.Kind == world.KindRequestArrives || d.Kind == world.KindReplyArrives ||
			d.Kind == world.KindPostArrives) && d.A == c.ID {
			return true
		}
	}
	for _, n := range s.w.Nodes {
		if slices.ContainsFunc(n.Missed, func(d world.Delivery) bool { return d.A == c.ID }) {
			return true
		}
	}
	return false
}

// hashMissed hashes the messages that wait for a node that is down, in any order.
func (s *stateHasher) hashMissed(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Delivery)(p)
	HashBag(h, all, func(i int, one *snapshot.Hasher) bool {
		s.hashDelivery(one, &all[i])
		return true
	})
}

// hashRequests hashes the requests that can still be answered.
func (s *stateHasher) hashRequests(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Request)(p)
	HashBag(h, all, func(i int, one *snapshot.Hasher) bool {
		r := &all[i]
		if r.Replied || !s.w.IsRunning(r.Node, r.Incarnation) {
			return false
		}
		one.Value(reflect.TypeFor[world.Request](), unsafe.Pointer(r))
		return true
	})
}

func (s *stateHasher) hashLinks(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Link)(p)
	HashBag(h, all, func(i int, one *snapshot.Hasher) bool {
		one.Value(reflect.TypeFor[world.Link](), unsafe.Pointer(all[i]))
		return true
	})
}

// hashTransfers hashes the transfers that are not over.
func (s *stateHasher) hashTransfers(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Transfer)(p)
	HashBag(h, all, func(i int, one *snapshot.Hasher) bool {
		t := all[i]
		if t.IsOver() {
			return false
		}
		one.Value(reflect.TypeFor[world.Transfer](), unsafe.Pointer(t))
		return true
	})
}

func (s *stateHasher) hashGrants(h *snapshot.Hasher, p unsafe.Pointer) {
	total := uint64(0)
	for _, g := range *(*map[effects.GrantID]*world.Grant)(p) {
		one := h.Fork()
		if g.Revoked && g.Holds == 0 { // Nothing can happen to the grant any more.
			one.Word(uint64(g.ID))
		} else {
			one.Value(reflect.TypeFor[world.Grant](), unsafe.Pointer(g))
		}
		total += one.Sum()
	}
	h.Word(total)
}

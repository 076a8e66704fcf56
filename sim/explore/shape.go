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
// equal situations that were reached in different ways. Instants count from now. A number that drivers assign
// throughout the world (of a connection, ticket, link, request or landing) is hashed as a name in the history of its
// node.
//
// The tag of a field states which part of the field does not matter (package snapshot defines the words of tags), or
// selects a rule below. A field that has neither tag nor rule is hashed unchanged: a new field can make states differ
// unnecessarily, but never makes different states equal. TestTypes verifies that the tags are valid.
type shape struct {
	walker *snapshot.Walker
	kinds  Kinds
	run    Run          // the run that is being hashed
	w      *world.World // its world
	sweeps bool         // a node of the world has work left of its last step
}

// ageMax is the greatest age at which an instant can still matter, which is longer than any time span that a scope adds
// to a recorded instant.
const ageMax = int64(unitsMax * Unit)

// newShape returns a shape for runs of the same types as like.
func newShape(like Run) *shape {
	s := &shape{kinds: like.Kinds()}
	s.walker = snapshot.New(append(append(s.machineRules(), s.worldRules(like)...), s.nameRules()...)...)
	return s
}

// clone returns a copy of a situation.
func (s *shape) clone(b *branch) *branch {
	c := snapshot.Clone(s.walker, b)
	c.w = c.run.Whole()
	c.run.Cloned()
	return c
}

// hash returns the hash of a situation.
func (s *shape) hash(b *branch) uint64 {
	s.run, s.w = b.run, b.w
	s.sweeps = slices.ContainsFunc(b.w.Nodes, func(n *world.Node) bool { return n.Up && n.Busy })
	return snapshot.Hash(s.walker, b)
}

// age returns an instant relative to now.
func (s *shape) age(at int64) uint64 { return uint64(max(at-s.w.Now, -ageMax)) }

// worldRules returns the rules for the types of a world.
func (s *shape) worldRules(like Run) []snapshot.Rule {
	var machines, states []reflect.Type
	for _, n := range like.Whole().Nodes {
		machines = withTypeOf(machines, n.Machine)
	}
	for _, state := range like.Whole().Panel.States {
		states = withTypeOf(states, state)
	}
	rules := []snapshot.Rule{
		{Type: reflect.TypeFor[effects.CommandBody](), Copy: snapshot.Share}, // borrowed for a step, never changed
		{Type: reflect.TypeFor[Run](), Implementations: []reflect.Type{reflect.TypeOf(like)}},
		{Type: reflect.TypeFor[effects.Machine](), Implementations: machines},
		{Type: reflect.TypeFor[oracle.State](), Implementations: states},
		{Type: reflect.TypeFor[world.Queue](), Hash: s.queue},
		{Word: "bag", Compile: s.compileBag},
		worded("instant", s.instant),
	}
	for t, are := range s.kinds.Others {
		rules = append(rules, snapshot.Rule{Type: t, Implementations: are})
	}
	return rules
}

// withTypeOf returns the types with the type of a value, once. The order of the types is part of the hashes.
func withTypeOf(types []reflect.Type, x any) []reflect.Type {
	if t := reflect.TypeOf(x); !slices.Contains(types, t) {
		return append(types, t)
	}
	return types
}

// compileBag returns the hash function of an unordered list. The function leaves out elements to which nothing
// can happen any more.
func (s *shape) compileBag(_ *snapshot.Walker, t reflect.Type) func(h *snapshot.Hasher, p unsafe.Pointer) {
	switch t {
	case reflect.TypeFor[[]*world.Conn]():
		return s.conns
	case reflect.TypeFor[[]world.Request]():
		return s.requests
	case reflect.TypeFor[[]*world.Link]():
		return s.links
	case reflect.TypeFor[[]*world.Transfer]():
		return s.transfers
	case reflect.TypeFor[map[effects.GrantID]*world.Grant]():
		return s.grants
	case reflect.TypeFor[[]world.Delivery]():
		return s.missed
	}
	if of := s.kinds.Bags[t]; of != nil {
		return func(h *snapshot.Hasher, p unsafe.Pointer) { of(s.w, h, p) }
	}
	panic("BUG: nobody knows what counts of a bag of " + t.String())
}

// instant hashes an instant of the world's clock; 0 is none.
func (s *shape) instant(h *snapshot.Hasher, at *int64) {
	if *at != 0 {
		h.Word(s.age(*at))
	} else {
		h.Word(1)
	}
}

// conns hashes the connections on which something can still happen.
func (s *shape) conns(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Conn)(p)
	Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		c := all[i]
		if c.Closed && c.Waits() == 0 && !c.Holds() && !s.underWay(c) {
			return false
		}
		one.Value(reflect.TypeFor[world.Conn](), unsafe.Pointer(c))
		return true
	})
}

// underWay reports whether a message of c is in flight.
func (s *shape) underWay(c *world.Conn) bool {
	for _, q := range s.w.Queue.Heap {
		if d := &s.w.Queue.Slab[q.Slot]; (d.Kind == world.KindArrive || d.Kind == world.KindAnswer ||
			d.Kind == world.KindTold) && d.A == c.ID {
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

// missed hashes the messages that wait for a node that is down, in any order.
func (s *shape) missed(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Delivery)(p)
	Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		s.delivery(one, &all[i])
		return true
	})
}

// requests hashes the requests that can still be answered.
func (s *shape) requests(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Request)(p)
	Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		r := &all[i]
		if r.Replied || !s.w.Lives(r.Node, r.Life) {
			return false
		}
		one.Value(reflect.TypeFor[world.Request](), unsafe.Pointer(r))
		return true
	})
}

func (s *shape) links(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Link)(p)
	Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		one.Value(reflect.TypeFor[world.Link](), unsafe.Pointer(all[i]))
		return true
	})
}

// transfers hashes the transfers that are not over.
func (s *shape) transfers(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Transfer)(p)
	Bag(h, all, func(i int, one *snapshot.Hasher) bool {
		t := all[i]
		if t.Over() {
			return false
		}
		one.Value(reflect.TypeFor[world.Transfer](), unsafe.Pointer(t))
		return true
	})
}

func (s *shape) grants(h *snapshot.Hasher, p unsafe.Pointer) {
	total := uint64(0)
	for _, g := range *(*map[effects.GrantID]*world.Grant)(p) {
		one := h.Fork()
		if g.Gone && g.Holds == 0 { // Nothing can happen to the grant any more.
			one.Word(uint64(g.ID))
		} else {
			one.Value(reflect.TypeFor[world.Grant](), unsafe.Pointer(g))
		}
		total += one.Sum()
	}
	h.Word(total)
}

package sim

import (
	"reflect"
	"slices"
	"unsafe"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// A shape clones worlds and hashes what of them can still matter. Two things make equal
// situations equal although they were reached in different ways: instants count from
// now, and what drivers number through the whole world (connections, tickets, links,
// requests, landings) goes by the name that it has in its own node's history.
//
// Fields say by their tags what does not count of them (package snapshot has the words),
// or which of the words below they go by. Whatever has neither tag nor rule is hashed as it
// is: a field that somebody adds can make states differ that need not, never the other way
// round. TestTypes holds that the tags make sense.
type shape struct {
	walker           *snapshot.Walker
	w                *trial         // the one that is being hashed
	machines, states []reflect.Type // of machines, and of what users' oracles remember
	corrs            uintptr        // where a rank keeps its outstanding effects
}

// ageMax is how far back an instant can lie and still matter: longer than any span that a
// scope adds to an instant it remembers.
const ageMax = int64(unitsMax * unit)

// newShape is a shape for worlds like one; nil: of ranks alone.
func newShape(like *trial) *shape {
	s := &shape{}
	if s.machines = []reflect.Type{reflect.TypeFor[*rank.Rank]()}; like != nil {
		s.machines, s.states = kindsOf(like)
	}
	s.corrs = snapshot.OffsetOf[kernel.Corrs](reflect.TypeFor[rank.Rank](), "corrs")
	s.walker = snapshot.New(append(append(s.machineRules(), s.worldRules()...), s.nameRules()...)...)
	return s
}

func (s *shape) clone(b *branch) *branch {
	c := snapshot.Clone(s.walker, b)
	c.w.cloned()
	return c
}

func (s *shape) hash(b *branch) uint64 {
	s.w = b.w
	return snapshot.Hash(s.walker, b)
}

// age is an instant as it counts: from now.
func (s *shape) age(at int64) uint64 { return uint64(max(at-s.w.Now, -ageMax)) }

func (s *shape) worldRules() []snapshot.Rule {
	return []snapshot.Rule{
		{Type: reflect.TypeFor[effects.CommandBody](), Copy: snapshot.Share}, // borrowed for a step, never changed
		{Type: reflect.TypeFor[effects.Machine](), Are: s.machines},
		{Type: stateType, Are: append(s.states, reflect.TypeFor[*struct{}]())},
		{Type: reflect.TypeFor[world.Queue](), Hash: s.queue},
		{Word: "bag", Compile: s.compileBag},
		worded("instant", s.instant),
	}
}

// compileBag hashes what is there in any order, and without what nothing can be done with
// any more.
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
	case reflect.TypeFor[[]pd.Command]():
		return s.commands
	case reflect.TypeFor[map[effects.GrantID]*world.Grant]():
		return s.grants
	case reflect.TypeFor[[]world.Delivery]():
		return s.missed
	}
	panic("BUG: nobody knows what counts of a bag of " + t.String())
}

// instant hashes one of the world's clock; zero is none.
func (s *shape) instant(h *snapshot.Hasher, at *int64) {
	if *at != 0 {
		h.Word(s.age(*at))
	} else {
		h.Word(1)
	}
}

// bag adds parts whose order does not count.
func bag[T any](h *snapshot.Hasher, all []T, matters func(i int, one *snapshot.Hasher) bool) {
	total := uint64(0)
	for i := range all {
		if one := h.Apart(); matters(i, &one) {
			total += one.Sum()
		}
	}
	h.Word(total)
}

func (s *shape) conns(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Conn)(p)
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
		c := all[i]
		if c.Closed && c.Waits() == 0 && !c.Holds() && !s.underWay(c) {
			return false
		}
		one.Value(reflect.TypeFor[world.Conn](), unsafe.Pointer(c))
		return true
	})
}

// underWay says whether a message of c still is.
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

// missed hashes what waits for a node that is down, in any order.
func (s *shape) missed(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Delivery)(p)
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
		s.delivery(one, &all[i])
		return true
	})
}

func (s *shape) requests(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]world.Request)(p)
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
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
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
		one.Value(reflect.TypeFor[world.Link](), unsafe.Pointer(all[i]))
		return true
	})
}

func (s *shape) transfers(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]*world.Transfer)(p)
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
		t := all[i]
		if t.Over() {
			return false
		}
		one.Value(reflect.TypeFor[world.Transfer](), unsafe.Pointer(t))
		return true
	})
}

// commands hashes of one that is over how it ended: what follows from it is in jobs and
// pages.
func (s *shape) commands(h *snapshot.Hasher, p unsafe.Pointer) {
	all := *(*[]pd.Command)(p)
	bag(h, all, func(i int, one *snapshot.Hasher) bool {
		c := &all[i]
		if !s.w.Lives(c.Node, c.Life) {
			return false
		}
		if c.Over && !c.Held {
			one.Word(uint64(c.Name))
			one.Word(uint64(c.Code))
			one.Value(reflect.TypeFor[bool](), unsafe.Pointer(&c.Released))
			one.Value(reflect.TypeFor[[]effects.Page](), unsafe.Pointer(&c.Pages))
			return true
		}
		one.Value(reflect.TypeFor[pd.Command](), unsafe.Pointer(c))
		return true
	})
}

func (s *shape) grants(h *snapshot.Hasher, p unsafe.Pointer) {
	total := uint64(0)
	for _, g := range *(*map[effects.GrantID]*world.Grant)(p) {
		one := h.Apart()
		if g.Gone && g.Holds == 0 { // Nothing can be done with it any more.
			one.Word(uint64(g.ID))
		} else {
			one.Value(reflect.TypeFor[world.Grant](), unsafe.Pointer(g))
		}
		total += one.Sum()
	}
	h.Word(total)
}

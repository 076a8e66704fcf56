package explore_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd/ledger"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// TestTypes: every type in a state can be cloned and hashed as the tags of its fields state, and every tag is valid
// for its field. No part of a machine points into a different part. No part keeps views of a message of an earlier
// step, because that memory belongs to the driver again.
func TestTypes(t *testing.T) {
	reached, slots := map[reflect.Type]bool{}, map[reflect.Type]bool{}
	tagged := map[reflect.Type]string{} // a field with the tag past, of each type that has one
	for _, w := range walkers(t) {
		for _, fault := range w.CheckTags(explore.StateType) {
			t.Error(fault)
		}
		world := map[reflect.Type]bool{}
		for owner, f := range w.Fields(explore.StateType) {
			if world[owner] = true; reached[owner] {
				continue // The world of an earlier flow contains the same type.
			}
			if to, ok := pointerToOtherRoom(owner, f.Type); ok {
				t.Errorf("%s.%s points to a %s of another room: rooms come by argument", owner, f.Name, to)
			}
			if f.Tag != `snap:"scratch"` && strings.HasPrefix(owner.PkgPath(), roomsOfMachines) && isMessage(f.Type) {
				t.Errorf("%s.%s is a message with views of a body, which is of use within one step only: tag it scratch",
					owner, f.Name)
			}
			if f.Tag == `snap:"past"` {
				tagged[owner] = f.Name
			}
			if isSlab(owner) {
				addSlotTypes(slots, explore.SlabElement(owner))
			}
		}
		maps.Copy(reached, world)
	}
	for owner, field := range tagged {
		if !slots[owner] {
			t.Errorf("%s.%s is to be hashed of slots that are free, and lies in none", owner, field)
		}
	}
	for _, must := range []reflect.Type{
		reflect.TypeFor[rank.Rank](), reflect.TypeFor[staging.Pipeline](), reflect.TypeFor[flow.Rooms](),
		reflect.TypeFor[world.World](), reflect.TypeFor[ledger.Oracles](), reflect.TypeFor[ledger.QueueState](),
	} {
		if !reached[must] {
			t.Errorf("no field of a %s was looked at", must)
		}
	}
}

// rankWalker returns a walker for ranks alone.
func rankWalker(t *testing.T) *snapshot.Walker {
	return explore.WalkerFor(newRun(t, sim.PD(), explore.Scope{}))
}

// walkers returns a walker for ranks alone, and a walker for a small world of each flow.
func walkers(t *testing.T) []*snapshot.Walker {
	all := []*snapshot.Walker{rankWalker(t)}
	for _, flow := range systems.Flows {
		all = append(all, explore.WalkerFor(newRun(t, sim.PD(), flow.Scopes()[0])))
	}
	return all
}

// The errors that TestTypes would report for types with mistakes.
func TestTypesRefuses(t *testing.T) {
	type bad struct {
		A int32       `snap:"scrach"`
		B *world.Node `snap:"bag"`
		C func()
	}
	faults := rankWalker(t).CheckTags(reflect.TypeFor[[]bad]())
	for i, want := range []string{`bad.A: nobody knows the word "scrach"`, "bad.B: the word", "bad.C: no clone"} {
		if i >= len(faults) || !strings.Contains(faults[i], want) {
			t.Errorf("found %q, want one with %q", faults, want)
		}
	}
	for i, fault := range []string{
		hashError[struct {
			X uint32 `snap:"instant"`
		}](rankWalker(t)),
		hashError[struct {
			X effects.Conn `snap:"link"`
		}](rankWalker(t)),
		hashError[struct {
			X []*world.Node `snap:"bag"`
		}](rankWalker(t)),
		hashError[struct {
			X []world.Conn `snap:"whole"`
		}](rankWalker(t)),
	} {
		if !strings.HasPrefix(fault, "BUG: ") {
			t.Errorf("type %d was hashed, or else: %q", i, fault)
		}
	}
	if _, ok := pointerToOtherRoom(reflect.TypeFor[staging.Pipeline](), reflect.TypeFor[map[int][]*memory.Pool]()); !ok {
		t.Error("a pointer from one room to another was not seen")
	}
	if to, ok := pointerToOtherRoom(reflect.TypeFor[memory.Pool](), reflect.TypeFor[*memory.Pool]()); ok {
		t.Errorf("a pointer within a room was taken for one to another: %s", to)
	}
	if !isMessage(reflect.TypeFor[protocol.HixlReadyResponse]()) || isMessage(reflect.TypeFor[protocol.RenewRequest]()) ||
		isMessage(reflect.TypeFor[protocol.Layout]()) {
		t.Error("a message with views of its body was not told from what is none")
	}
	if isSlab(reflect.TypeFor[table.Index]()) || !isSlab(reflect.TypeFor[table.Slab[world.Node]]()) {
		t.Error("a slab was not told from what is none")
	}
}

// hashError returns the panic value with which hashing a T fails.
func hashError[T any](w *snapshot.Walker) (fault string) {
	defer func() { fault = fmt.Sprint(recover()) }()
	var v T
	snapshot.Hash(w, &v)
	return ""
}

const roomsOfMachines = "github.com/kvferry/kvferry/fsm/"

// pointerToOtherRoom returns the target of a pointer, in the type of a field of owner, that leads into a different
// package of the machines.
func pointerToOtherRoom(owner, t reflect.Type) (reflect.Type, bool) {
	for {
		//exhaustive:ignore
		switch t.Kind() {
		case reflect.Pointer:
			t = t.Elem()
			if from, to := owner.PkgPath(), t.PkgPath(); from != to &&
				strings.HasPrefix(from, roomsOfMachines) && strings.HasPrefix(to, roomsOfMachines) {
				return t, true
			}
		case reflect.Slice, reflect.Array, reflect.Map:
			t = t.Elem()
		default:
			return nil, false
		}
	}
}

// isMessage reports whether values of a type are decoded from message bodies and contain views of the bodies.
func isMessage(t reflect.Type) bool {
	_, decodes := reflect.PointerTo(t).MethodByName("Decode")
	return decodes && t.PkgPath() == reflect.TypeFor[protocol.Layout]().PkgPath() && hasBytes(t)
}

func hasBytes(t reflect.Type) bool {
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if hasBytes(t.Field(i).Type) {
				return true
			}
		}
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 || hasBytes(t.Elem())
	default:
	}
	return false
}

func isSlab(t reflect.Type) bool {
	some := reflect.TypeFor[table.Slab[struct{}]]()
	name, _, _ := strings.Cut(some.Name(), "[")
	return t.PkgPath() == some.PkgPath() && strings.HasPrefix(t.Name(), name+"[")
}

// addSlotTypes adds t and the types of its fields and elements.
func addSlotTypes(slots map[reflect.Type]bool, t reflect.Type) {
	//exhaustive:ignore
	switch t.Kind() {
	case reflect.Struct:
		slots[t] = true
		for i := range t.NumField() {
			addSlotTypes(slots, t.Field(i).Type)
		}
	case reflect.Array:
		addSlotTypes(slots, t.Elem())
	default:
	}
}

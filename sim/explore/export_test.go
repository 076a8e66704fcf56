package explore

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
	"github.com/kvferry/kvferry/snapshot"
)

// Access for the external tests of this package, which create their worlds with package sim. Package sim imports this
// package.

// StateType is the type that is cloned and hashed.
var StateType = reflect.TypeFor[state]()

// WalkerFor returns a walker for runs of the same types as the example.
func WalkerFor(example Run) *snapshot.Walker { return newStateHasher(example).walker }

// SlabElement returns the element type of a table.Slab of type t.
func SlabElement(t reflect.Type) reflect.Type { return slabLayoutOf(t).element }

// FinalHashes returns the hashes of a scope's final states, and the number of all states. If stepwise is set,
// the explorer combines no choices.
func FinalHashes(s Scope, stepwise bool) (ends map[uint64]bool, states int, err error) {
	root, err := s.newState()
	if err != nil {
		return nil, 0, err
	}
	root.stepwise, ends = stepwise, map[uint64]bool{}
	x := &explorer{options: Options{Scope: s, States: StatesMax}, hasher: newStateHasher(root.run), seen: map[uint64]int32{},
		onFinalState: func(h uint64) { ends[h] = true }}
	if x.searchFrom(root); x.broken {
		err = fmt.Errorf("path %v breaks a promise", x.path)
	}
	return ends, len(x.seen), err
}

// PathComparer explores a scope and continues from each state as often as the state is met, in order to verify
// that the successors are always the same.
type PathComparer struct {
	explorer   *explorer
	Successors map[uint64][]uint64
	Repeats    int
}

// WalkScope explores a scope.
func (a *PathComparer) WalkScope(s Scope) error {
	root, err := s.newState()
	if err != nil {
		return err
	}
	a.explorer, a.Successors = &explorer{options: Options{Scope: s}, hasher: newStateHasher(root.run)}, map[uint64][]uint64{}
	return a.visitState(root, nil)
}

func (a *PathComparer) visitState(b *state, path Path) error {
	var after []uint64
	var children []*state
	var positions Path
	for i, c := range b.listChoices(&a.explorer.options.Scope, nil) {
		child := a.explorer.hasher.cloneState(b)
		if !a.explorer.tryChoice(child, c) {
			continue
		}
		if child.w.Failure != nil {
			return fmt.Errorf("path %v: %v", append(path, i), child.w.Failure)
		}
		after = append(after, a.explorer.hasher.hashState(child))
		children, positions = append(children, child), append(positions, i)
	}
	h := a.explorer.hasher.hashState(b)
	sorted := slices.Sorted(slices.Values(after))
	if earlier, ok := a.Successors[h]; ok {
		a.Repeats++
		if !slices.Equal(earlier, sorted) {
			return fmt.Errorf("path %v leads to a situation that was met before but goes on otherwise: %d choices, then %d",
				path, len(earlier), len(sorted))
		}
		return nil
	}
	a.Successors[h] = sorted
	for i, child := range children {
		if err := a.visitState(child, append(slices.Clone(path), positions[i])); err != nil {
			return err
		}
	}
	return nil
}

// RunWithClones runs a run to its end, and continues with a clone after every twentieth of the faulty phase. It returns
// the hash of the event log, and the snapshot rules that matched nothing.
func RunWithClones(run Run) (hash uint64, unused []string) {
	s := newStateHasher(run)
	b := &state{run: run, w: run.BaseWorld()}
	for _, phase := range []func(){
		func() {
			for i := range int64(20) {
				b.w.RunUntil(int64(b.w.Conditions.FaultsEnd)*(i+1)/20, nil)
				b = s.cloneState(b)
			}
		}, func() { b.w.HealAll() }, func() { b.w.FinishCommands() }, func() { b.w.RunProbes() }, func() { b.w.RunExpiry() },
		func() { b.w.DrainAll() },
	} {
		b.w.Journal.AddLine(b.w.Now, world.KindPhase, plan.NoNode, 0, 0, 0)
		phase()
	}
	return b.w.Journal.Hash, s.walker.UnusedRules()
}

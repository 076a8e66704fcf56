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

// SituationType is the type that is cloned and hashed.
var Situation = reflect.TypeFor[branch]()

// WalkerFor returns a walker for runs of the same types as the example.
func Walker(like Run) *snapshot.Walker { return newShape(like).walker }

// SlabElement returns the element type of a table.Slab of type t.
func Element(t reflect.Type) reflect.Type { return layoutOf(t).element }

// FinalHashes returns the hashes of a scope's final situations, and the number of all situations. If stepwise is set,
// the explorer combines no choices.
func Ends(s Scope, stepwise bool) (ends map[uint64]bool, states int, err error) {
	root, err := s.begin()
	if err != nil {
		return nil, 0, err
	}
	root.stepwise, ends = stepwise, map[uint64]bool{}
	x := &explorer{o: Options{Scope: s, States: StatesMax}, shape: newShape(root.run), seen: map[uint64]int32{},
		onEnd: func(h uint64) { ends[h] = true }}
	if x.search(root); x.broken {
		err = fmt.Errorf("path %v breaks a promise", x.path)
	}
	return ends, len(x.seen), err
}

// PathComparer explores a scope and continues from each situation as often as the situation is met, in order to verify
// that the successors are always the same.
type Alike struct {
	x    *explorer
	Next map[uint64][]uint64
	Met  int
}

// WalkScope explores a scope.
func (a *Alike) Walk(s Scope) error {
	root, err := s.begin()
	if err != nil {
		return err
	}
	a.x, a.Next = &explorer{o: Options{Scope: s}, shape: newShape(root.run)}, map[uint64][]uint64{}
	return a.visit(root, nil)
}

func (a *Alike) visit(b *branch, path Path) error {
	var after []uint64
	var kept []*branch
	var way Path
	for i, c := range b.choices(&a.x.o.Scope, nil) {
		child := a.x.shape.clone(b)
		if !a.x.try(child, c) {
			continue
		}
		if child.w.Failure != nil {
			return fmt.Errorf("path %v: %v", append(path, i), child.w.Failure)
		}
		after = append(after, a.x.shape.hash(child))
		kept, way = append(kept, child), append(way, i)
	}
	h := a.x.shape.hash(b)
	sorted := slices.Sorted(slices.Values(after))
	if was, ok := a.Next[h]; ok {
		a.Met++
		if !slices.Equal(was, sorted) {
			return fmt.Errorf("path %v leads to a situation that was met before but goes on otherwise: %d choices, then %d",
				path, len(was), len(sorted))
		}
		return nil
	}
	a.Next[h] = sorted
	for i, child := range kept {
		if err := a.visit(child, append(slices.Clone(path), way[i])); err != nil {
			return err
		}
	}
	return nil
}

// RunWithClones runs a run to its end, and continues with a clone after every twentieth of the faulty phase. It returns
// the hash of the event log, and the snapshot rules that matched nothing.
func Live(run Run) (hash uint64, unused []string) {
	s := newShape(run)
	b := &branch{run: run, w: run.Whole()}
	for _, phase := range []func(){
		func() {
			for i := range int64(20) {
				b.w.RunUntil(int64(b.w.Setting.Faulty)*(i+1)/20, nil)
				b = s.clone(b)
			}
		}, func() { b.w.Heal() }, func() { b.w.Finish() }, func() { b.w.Probes() }, func() { b.w.Expire() },
		func() { b.w.End() },
	} {
		b.w.Journal.Note(b.w.Now, world.KindPhase, plan.Nobody, 0, 0, 0)
		phase()
	}
	return b.w.Journal.Hash, s.walker.UnusedRules()
}

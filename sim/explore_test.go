package sim

import (
	"maps"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// small are the scopes that take less than a second each, of every sort; compared are
// those that are walked twice as well.
var (
	small = []string{"push", "batch", "batches", "early", "waiter", "full", "leased", "leased-full", "push-abort", "push-cut",
		"push-crash-receiver", "push-crash-sender", "push-lost", "push-stall", "leased-crash", "leased-stall",
		"push-device", "push-refused", "push-again", "leased-device", "leased-lost", "push-any", "batch-any", "leased-any",
		"pull", "pull-batch", "pull-abort", "pull-crash-sender", "pull-device", "pull-doubled", "pull-lost", "leased-pull", "leased-pull-abort",
		"leased-pull-crash", "leased-pull-device", "leased-pull-lost", "leased-pull-stall",
		"delayed", "delayed-batch", "delayed-abandon", "delayed-abort", "delayed-crash-sender", "delayed-crash-receiver", "delayed-cut", "delayed-device",
		"delayed-early", "delayed-lost", "delayed-stall", "leased-delayed", "leased-delayed-abort", "leased-delayed-crash", "leased-delayed-device",
		"leased-delayed-lost", "leased-delayed-stall", "leased-delayed-drain"}
	compared = []string{"batches", "early", "push-abort", "push-crash-receiver", "push-crash-sender", "push-lost", "push-device", "push-refused", "push-again", "push-any",
		"pull-device", "pull-doubled", "pull-lost", "leased-pull-abort", "leased-pull-device", "leased-pull-lost",
		"delayed-batch", "delayed-abandon", "delayed-device", "delayed-early", "leased-delayed", "leased-delayed-lost"}
	slow = []string{"waiter", "full", "leased-full", "push-cut", "push-stall", "leased-crash", "pull-abort", "leased-pull-stall", "delayed-abort", "delayed-crash-receiver", "leased-delayed-crash"}
)

func scope(t testing.TB, name string) Scope {
	t.Helper()
	s, err := ScopeNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSmallScopes: every order of everything in these scopes keeps every promise.
func TestSmallScopes(t *testing.T) {
	names := small
	if testing.Short() {
		names = compared
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			e, err := Explore(ExploreOptions{Scope: scope(t, name)})
			if err != nil {
				t.Fatal(err)
			}
			if e.Violation != nil {
				t.Fatal(e.Violation)
			}
			if !e.Complete || e.Ends == 0 {
				t.Fatalf("not complete: cut at %s after %d states", e.Cut, e.States)
			}
			t.Logf("%d states, %d transitions, %d ends, depth %d, %v", e.States, e.Transitions, e.Ends, e.Depth, e.Took)
		})
	}
}

// TestViolation: a page that the ledger believes to be granted already is granted again.
// The path to it is as short as any, and goes there once more, also through its text.
func TestViolation(t *testing.T) {
	s := scope(t, "early")
	s.spoil = func(w *trial) {
		w.Nodes[1].Pool.Pages[0].Granted = 99
		w.Nodes[1].Pool.Touch(0)
	}
	e, err := Explore(ExploreOptions{Scope: s})
	if err != nil {
		t.Fatal(err)
	}
	v := e.Violation
	if v == nil || v.Property != "S5" || e.Complete {
		t.Fatalf("found %v, complete %v", v, e.Complete)
	}
	shorter, err := Explore(ExploreOptions{Scope: s, Depth: len(v.Path) - 1})
	if err != nil || shorter.Violation != nil || shorter.Cut == "" {
		t.Fatalf("within depth %d: violation %v, cut %q, error %v", len(v.Path)-1, shorter.Violation, shorter.Cut, err)
	}
	p, err := ParsePath(v.Path.String())
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	again, err := Retrace(s, p, func(string) { lines++ })
	if err != nil || again == nil || again.Story != v.Story || lines != len(v.Events) || lines <= len(p) {
		t.Fatalf("retraced %v in %d lines, error %v", again, lines, err)
	}
	if _, err := Retrace(s, Path{0, 1 << 20}, nil); err == nil {
		t.Error("retraced a choice that there is not")
	}
}

// TestEqualStatesGoOnAlike is what the whole method rests on: whenever a situation is met
// whose hash was met before, the same choices lead from it to the same situations. What
// is left out of the hash, or named, or counted from now, therefore does not matter.
func TestEqualStatesGoOnAlike(t *testing.T) {
	names := compared
	if !testing.Short() {
		names = append(names, slow...)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := scope(t, name)
			root, err := s.begin()
			if err != nil {
				t.Fatal(err)
			}
			a := &alike{t: t, x: &explorer{o: ExploreOptions{Scope: s}, shape: newShape(nil)}, next: map[uint64][]uint64{}}
			a.visit(root, nil)
			t.Logf("%d states, of which %d meetings were compared", len(a.next), a.met)
		})
	}
}

type alike struct {
	t    *testing.T
	x    *explorer
	next map[uint64][]uint64
	met  int
}

func (a *alike) visit(b *branch, path Path) {
	s := &a.x.o.Scope
	var after []uint64
	var kept []*branch
	var way Path
	for i, c := range b.choices(s, nil) {
		child := a.x.shape.clone(b)
		if !a.x.try(child, c) {
			continue
		}
		if child.w.Failure != nil {
			a.t.Fatalf("path %v: %v", append(path, i), child.w.Failure)
		}
		after = append(after, a.x.shape.hash(child))
		kept, way = append(kept, child), append(way, i)
	}
	h := a.x.shape.hash(b)
	sorted := slices.Sorted(slices.Values(after))
	if was, ok := a.next[h]; ok {
		a.met++
		if !slices.Equal(was, sorted) {
			a.t.Fatalf("path %v leads to a situation that was met before but goes on otherwise: %d choices, then %d", path, len(was), len(sorted))
		}
		return
	}
	a.next[h] = sorted
	for i, child := range kept {
		a.visit(child, append(slices.Clone(path), way[i]))
	}
}

// TestNothingIsLostByDoingThingsTogether: with every wait that the explorer leaves out put
// back, a scope ends in the same situations, and no others.
func TestNothingIsLostByDoingThingsTogether(t *testing.T) {
	for _, name := range compared {
		t.Run(name, func(t *testing.T) {
			s := scope(t, name)
			var ends [2]map[uint64]bool
			var states [2]int
			for i := range ends {
				root, err := s.begin()
				if err != nil {
					t.Fatal(err)
				}
				root.stepwise = i == 1
				ends[i] = map[uint64]bool{}
				x := &explorer{o: ExploreOptions{Scope: s, States: StatesMax}, shape: newShape(nil), seen: map[uint64]int32{},
					onEnd: func(h uint64) { ends[i][h] = true }}
				x.search(root)
				if x.broken {
					t.Fatalf("path %v breaks a promise", x.path)
				}
				states[i] = len(x.seen)
			}
			if !maps.Equal(ends[0], ends[1]) {
				t.Fatalf("%d ends, step by step %d, or others", len(ends[0]), len(ends[1]))
			}
			t.Logf("%d ends; %d states, step by step %d", len(ends[0]), states[0], states[1])
		})
	}
}

// TestClonesGoOnAlike: a world of any campaign that is put aside and replaced by its clone
// now and then writes the same event log to its end.
func TestClonesGoOnAlike(t *testing.T) {
	s, seeds := newShape(nil), uint64(12)
	if testing.Short() {
		seeds = 3
	}
	for _, profile := range expand.Profiles() {
		for seed := range seeds {
			want, err := Run(Options{Seed: seed, Profile: profile})
			if err != nil {
				t.Fatal(err)
			}
			drawn, err := expand.Plan(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			w, err := newTrial(Options{}, &drawn)
			if err != nil {
				t.Fatal(err)
			}
			b := &branch{w: w}
			for _, phase := range []func(){
				func() { b = s.inPieces(b) }, func() { b.w.Heal() }, func() { b.w.Finish() },
				func() { b.w.Probe() }, func() { b.w.Expire() }, func() { b.w.End() },
			} {
				b.w.Journal.Note(b.w.Now, world.KindPhase, plan.Nobody, 0, 0, 0)
				phase()
			}
			if b.w.Journal.Hash != want.Hash {
				t.Errorf("profile %s seed %d: event log %x, of clones %x", profile, seed, want.Hash, b.w.Journal.Hash)
			}
		}
	}
	if unused := s.walker.Unused(); len(unused) > 0 {
		t.Errorf("rules that match nothing: %v", unused)
	}
}

// inPieces runs the faulty phase, going on with a clone after every twentieth of it.
func (s *shape) inPieces(b *branch) *branch {
	for i := range int64(20) {
		b.w.RunUntil(int64(b.w.Setting.Faulty)*(i+1)/20, nil)
		b = s.clone(b)
	}
	return b
}

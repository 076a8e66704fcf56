package sim_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The system without ranks that comes with the simulator is selected by a profile: the name of the profile is
// sufficient to draw, run, save and replay a plan, and failures name the profile.
func TestProfileWithoutRanks(t *testing.T) {
	const name = "directory"
	if !slices.Contains(sim.Profiles(), name) || sim.CheckProfile(name) != nil {
		t.Fatalf("profiles are %q", sim.Profiles())
	}
	p, err := sim.Expand(3, name)
	if err != nil || p.System != name || p.Profile != name || len(p.Items) == 0 {
		t.Fatalf("it draws %+v: %v", p, err)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	kept, err := sim.ReadPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	never := oracle.New("never", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, c *oracle.Call, _ sim.RunEnded) { c.Fail("it ended") })
	})
	drawn, err := sim.Run(sim.Options{Seed: 3, Profile: name})
	if err != nil || drawn.Failure != nil {
		t.Fatal(err, drawn.Failure)
	}
	again, err := sim.Run(sim.Options{Plan: &kept, Oracles: []oracle.Oracle{never}})
	if err != nil || again.Hash != drawn.Hash || again.Failure == nil {
		t.Fatalf("the plan runs %x, the seed %x: %v", again.Hash, drawn.Hash, err)
	}
	if want := "kvferry sim replay --seed 3 --profile directory"; again.Failure.ReplayCommand() != want {
		t.Errorf("it is shown again by %q, want %q", again.Failure.ReplayCommand(), want)
	}
}

// Some seeds of the directory system keep all promises, and contain the situations that the oracles judge.
func TestDirectory(t *testing.T) {
	const noticed = 5 // of directory.NoteKind: more than the arrival and departure of workers
	said := map[uint64]int{}
	asked := 0
	look := oracle.New("look", "", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, _ *oracle.Call, e *effects.Observe) {
			if e.Fact == effects.FactDirectory {
				said[e.ID]++
			}
		})
		oracle.On(l, func(_ *struct{}, _ *oracle.Call, _ *effects.Reply) { asked++ })
	})
	for seed := range uint64(30) {
		r, err := sim.Run(sim.Options{Seed: seed, Profile: "directory", Oracles: []oracle.Oracle{look}})
		if err != nil || r.Failure != nil {
			t.Fatal(err, r.Failure)
		}
	}
	if len(said) < noticed || asked < 1000 {
		t.Errorf("thirty seeds have %d answers, and notes %v", asked, said)
	}
}

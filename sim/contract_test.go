package sim_test

import (
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/sim"
)

// seen is what came in some runs of what the contract allows.
type seen struct {
	endings   map[contract.Ending]uint64
	crossings [contract.Crossings]uint64
}

// audit is a property: neither machines nor drivers break the contract in any life of
// a node, and who lives at the end, has drained, is owed nothing.
func (s *seen) audit(fenced bool) sim.Property {
	return sim.Property{Name: "contract of effects", Watch: func() sim.Watcher {
		checkers := map[[2]int]*contract.Checker{}
		last := map[int]int{}
		return sim.Watcher{
			Step: func(x sim.Step) error {
				id := [2]int{x.Node, x.Life}
				c := checkers[id]
				if c == nil {
					c = contract.New(fenced)
					checkers[id], last[x.Node] = c, x.Life
				}
				if err := c.Told(x.Event); err != nil {
					return err
				}
				for i := range x.Effects.Len() {
					if err := c.Asked(x.Effects.At(i)); err != nil {
						return err
					}
				}
				return nil
			},
			End: func(*sim.Result) error {
				for id, c := range checkers {
					if err := c.Owed(); err != nil && last[id[0]] == id[1] {
						return err
					}
					for _, e := range contract.Legal() {
						s.endings[e] += c.Seen(e)
					}
					for x := range contract.Crossings {
						s.crossings[x] += c.Crossed(x)
					}
				}
				return nil
			},
		}
	}}
}

func (s *seen) missing() (list []string) {
	for _, e := range contract.Legal() {
		if s.endings[e] == 0 && e.Of != contract.Scattering && e.Of != contract.Copying { // No machine here does either.
			list = append(list, e.String())
		}
	}
	for x, n := range s.crossings {
		if n == 0 {
			list = append(list, contract.Crossing(x).String())
		}
	}
	return list
}

// Every ending and every crossing that the contract allows is seen within some hundred
// seeds: a simulator that were kinder than the real drivers may be, would fail here.
func TestContract(t *testing.T) {
	const few, many = 150, 3000 // The rarest endings decide how many seeds it takes.
	s := seen{endings: map[contract.Ending]uint64{}}
	for seed := uint64(0); seed < few || seed < many && len(s.missing()) > 0; seed++ {
		for _, profile := range []string{"fenced", "leased", "crash"} {
			plan, err := sim.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(sim.Options{Plan: &plan, Properties: []sim.Property{s.audit(!plan.Topology.Leased)}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
		}
	}
	for _, what := range s.missing() {
		t.Errorf("none of %d seeds saw %s", many, what)
	}
}

package sim_test

import (
	"testing"

	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
)

// contractCoverage counts the endings and crossings that occurred in some runs, of those that the contract allows.
type contractCoverage struct {
	endings   map[contract.Ending]uint64
	crossings [contract.CrossingCount]uint64
}

// auditState is the memory of the audit oracle in a run.
type auditState struct {
	checkers map[[2]int]*contract.Checker // by node and incarnation
	last     map[int]int                  // the present incarnation of each node
}

// newAudit returns an oracle that verifies that neither machines nor drivers break the contract in any incarnation of a
// node, and that a node that is up at the end, after draining, has received every completion.
func (s *contractCoverage) newAudit(fenced bool) oracle.Oracle {
	return oracle.New("contract of effects", "", func(l *oracle.Subscriptions[auditState]) {
		oracle.On(l, func(a *auditState, call *oracle.Call, x oracle.StepEnded) {
			if a.checkers == nil {
				a.checkers, a.last = map[[2]int]*contract.Checker{}, map[int]int{}
			}
			id := [2]int{int(call.Node()), int(call.Incarnation())}
			c := a.checkers[id]
			if c == nil {
				c = contract.New(fenced)
				a.checkers[id], a.last[id[0]] = c, id[1]
			}
			if err := c.CheckEvent(x.Event); err != nil {
				call.Fail("%v", err)
				return
			}
			for i := range x.Effects.Len() {
				if err := c.CheckEffect(x.Effects.At(i)); err != nil {
					call.Fail("%v", err)
					return
				}
			}
		})
		oracle.On(l, func(a *auditState, call *oracle.Call, _ sim.RunEnded) {
			for id, c := range a.checkers {
				if err := c.CheckCompleted(); err != nil && a.last[id[0]] == id[1] {
					call.Fail("%v", err)
					return
				}
				for _, e := range contract.LegalEndings() {
					s.endings[e] += c.CountEnding(e)
				}
				for x := range contract.CrossingCount {
					s.crossings[x] += c.CountCrossing(x)
				}
			}
		})
	})
}

func (s *contractCoverage) missingCases() (list []string) {
	for _, e := range contract.LegalEndings() {
		if s.endings[e] == 0 && e.Verb != contract.Scattering && e.Verb != contract.Copying &&
			e.Verb != contract.Verifying { // No machine here emits these effects.
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

// Every ending and every crossing that the contract allows occurs within some hundred seeds. A simulator that is more
// lenient than the real drivers would fail this test.
func TestContract(t *testing.T) {
	const few, many = 150, 3000 // The rarest endings determine the number of seeds.
	s := contractCoverage{endings: map[contract.Ending]uint64{}}
	for seed := uint64(0); seed < few || seed < many && len(s.missingCases()) > 0; seed++ {
		for _, profile := range []string{"fenced", "leased", "crash", "sums"} {
			plan, err := sim.Expand(seed, profile)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(sim.Options{Plan: &plan, Oracles: []oracle.Oracle{s.newAudit(!plan.Topology.Leased)}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
		}
	}
	for _, what := range s.missingCases() {
		t.Errorf("none of %d seeds saw %s", many, what)
	}
}

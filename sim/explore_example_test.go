package sim_test

import (
	"fmt"

	"github.com/kvferry/kvferry/sim"
)

func ExampleExplore() {
	scope := sim.Scope{
		Name: "mine",
		Jobs: []sim.ScopeJob{{Chunks: []int{1, 2}, Batch: 1}},
		// Any single reply may be lost.
		Faults: 1, DrawnFaults: []sim.Fault{sim.FaultReplyLost},
	}
	found, err := sim.Explore(sim.ExploreOptions{Scope: scope})
	if err != nil {
		fmt.Println(err)
		return
	}
	if found.Violation != nil {
		fmt.Println(found.Violation)
	}
	fmt.Println("complete:", found.Complete)
	// Output: complete: true
}

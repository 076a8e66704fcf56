package simtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/simtest"
)

// twoPrefills returns a plan in which two prefill nodes push shared chunks and chunks of their own to a decode node.
func twoPrefills() sim.Plan {
	p := sim.NewPlan()
	p.Topology.Senders, p.Topology.ReceiverPages = 2, 8
	for i := range uint32(6) {
		p.Jobs = append(p.Jobs, sim.Job{
			At: time.Duration(i) * 50 * time.Millisecond, Request: i, From: sim.Node(i % 2), To: 2,
			Keys: []uint32{1, 2, sim.FirstUnsharedKey + i}, Batch: 2,
		})
	}
	return p
}

// noDrain is a promise of the user: no command is refused because of a drain before some node was asked to drain. The
// oracle remembers whether a node was asked.
var noDrain = oracle.New("no-drain", "no command is refused for a drain that was never asked for",
	func(l *oracle.Subscriptions[bool]) {
		oracle.On(l, func(drained *bool, c *oracle.Call, e *effects.Command) {
			if _, ok := e.Body.(*rank.Drain); ok {
				*drained = true
			}
		})
		oracle.On(l, func(drained *bool, c *oracle.Call, e *effects.Deliver) {
			if e.Code == effects.Draining && !*drained {
				c.Fail("node %d refuses ticket %d although no node drains", c.Node(), oracle.Ticket(e.Ticket))
			}
		})
	})

// ExampleCheck is a complete test with a topology, a workload and a promise of the user; each seed draws different
// faults.
func ExampleCheck() {
	test := func(t *testing.T) {
		simtest.Check(t, simtest.Case{
			Seeds:   100,
			Plan:    func(seed uint64) sim.Plan { return twoPrefills().WithFaults(seed) },
			Oracles: []oracle.Oracle{noDrain},
		})
	}
	ok := testing.RunTests(func(_, _ string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "TestTwoPrefills", F: test}})
	fmt.Println(ok)
	// Output: true
}

package simtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim"
	"github.com/kvferry/kvferry/sim/simtest"
)

// Two prefills push what they share to one decode, and each its own.
func twoPrefills() sim.Plan {
	p := sim.NewPlan()
	p.Topology.Senders, p.Topology.ReceiverPages = 2, 8
	for i := range uint32(6) {
		p.Jobs = append(p.Jobs, sim.Job{
			At: time.Duration(i) * 50 * time.Millisecond, Request: i, From: sim.Node(i % 2), To: 2,
			Keys: []uint32{1, 2, sim.KeysOwn + i}, Batch: 2,
		})
	}
	return p
}

// noDrain is a promise of the user's own: no command is refused because somebody is
// shutting down, unless somebody was told to.
var noDrain = sim.Property{Name: "no-drain", Promise: "nobody is refused for a drain that was never asked for",
	Watch: func() sim.Watcher {
		drained := false
		return sim.Watcher{Step: func(s sim.Step) error {
			if c, ok := s.Event.(*effects.Command); ok {
				if _, ok := c.Body.(*rank.Drain); ok {
					drained = true
				}
			}
			for i := range s.Effects.Len() {
				if d, ok := s.Effects.At(i).(*effects.Deliver); ok && d.Code == effects.Draining && !drained {
					return fmt.Errorf("node %d refuses ticket %d at %v although nobody drains", s.Node, d.Ticket, time.Duration(s.Now))
				}
			}
			return nil
		}}
	}}

// ExampleCheck is a whole test: a topology and a workload of one's own under faults that
// each seed draws anew, and a promise of one's own.
func ExampleCheck() {
	test := func(t *testing.T) {
		simtest.Check(t, simtest.Case{
			Seeds:      100,
			Plan:       func(seed uint64) sim.Plan { return twoPrefills().WithFaults(seed) },
			Properties: []sim.Property{noDrain},
		})
	}
	ok := testing.RunTests(func(_, _ string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "TestTwoPrefills", F: test}})
	fmt.Println(ok)
	// Output: true
}

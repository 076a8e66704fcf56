package sim

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// TestAddresses: every node is found by its addresses, and by no address of a different node. Messages contain the
// addresses of the first seven nodes, so these addresses never change.
func TestAddresses(t *testing.T) {
	w := &trial{}
	for i := range int32(plan.NodesMax) {
		w.Nodes = append(w.Nodes, &world.Node{ID: i})
	}
	type at struct {
		effects.Addr
		ch effects.Channel
	}
	seen := map[at]int32{}
	for i := range int32(plan.NodesMax) {
		for ch := effects.ChannelInit; ch < 20; ch++ {
			a := world.AddressOf(i, ch)
			if other, ok := seen[at{a, ch}]; ok {
				t.Errorf("nodes %d and %d both have %s for channel %d", other, i, a, ch)
			}
			seen[at{a, ch}] = i
			if n := w.NodeAt(a, ch); n == nil || n.ID != i {
				t.Errorf("%s for channel %d is not found to be node %d", a, ch, i)
			}
			if n := w.NodeAt(effects.Addr{Host: a.Host, Port: a.Port + 1}, ch); n != nil {
				t.Errorf("node %d is found by the port after its own", n.ID)
			}
		}
	}
	for _, c := range []struct {
		node              int32
		host              string
		init, alloc, done uint16
	}{{0, "h1", 11111, 20000, 30000}, {1, "h11", 1111, 2000, 3000}, {3, "h1111", 11, 20, 30}, {4, "h11111", 1, 20, 30},
		{6, "h1111111", 1, 20, 30}} {
		init, alloc := world.AddressOf(c.node, effects.ChannelInit), world.AddressOf(c.node, effects.ChannelAlloc)
		done := world.AddressOf(c.node, effects.ChannelDone)
		if init != (effects.Addr{Host: c.host, Port: c.init}) || alloc.Port != c.alloc || done.Port != c.done {
			t.Errorf("node %d has %s, %s and %s: kept plans mean others", c.node, init, alloc, done)
		}
	}
	w.Nodes = w.Nodes[:2]
	if n := w.NodeAt(world.AddressOf(2, effects.ChannelInit), effects.ChannelInit); n != nil {
		t.Errorf("node %d is found in a world that does not have it", n.ID)
	}
}

package demo

import (
	"context"
	"fmt"
	"slices"
)

// In a ring each node is prefill and decode: it puts to the next one, and takes from the one before it. What its engine
// reserves and what lands in it are pages of one pool.

// ringNodes is how many there are.
const ringNodes = 3

// RingModes are the modes that nodes of both sides have.
func RingModes() []Mode {
	return slices.DeleteFunc(slices.Clone(modes), func(m Mode) bool { return m == PullDelayOffload })
}

// ring are the lines that a mode adds to the configuration of a node that is both.
func (m Mode) ring(donePort uint16) string {
	if m == Push {
		return ""
	}
	if m == Layerwise {
		return "use_layerwise: true\n"
	}
	lines := fmt.Sprintf("pd_pull_mode: true\npd_pull_done_port: %d\npd_pull_pending_ttl: %d\n", donePort, offersStand)
	if m.delays() {
		lines += "pd_delay_pull: true\n"
	}
	return lines
}

// ringPages is the size of a node's pool: half of it is for what its engine puts (engine_share_pct), and as much for
// what comes to it.
func (s shape) ringPages() int { return 2 * s.prefillPages }

// ringRoom is how many chunks may be on their way to a node: what its part of the pool holds, or what the node before
// it can lend, or computes.
func (m Mode) ringRoom(s shape) int {
	if m.delays() || m == Layerwise {
		return s.prefillPages * 3 / 4
	}
	return s.prefillPages
}

// startRing starts the nodes. Lines of who tells the proxy are tells.
func (c *cluster) startRing(ctx context.Context, o *Options, tells string) error {
	c.decodes = make([]decode, ringNodes)
	for i := range c.decodes {
		ports, err := c.reserve(1)
		if err != nil {
			return err
		}
		err = c.seatDecode(ctx, &c.decodes[i], newAdmission(o.Mode.ringRoom(o.shape)), place{
			name: fmt.Sprintf("node-%d", i), role: "both", number: i, more: tells + o.Mode.ring(ports[0]),
			own: o.Mode.own(o.shape), pages: o.shape.ringPages()}, o)
		if err != nil {
			return err
		}
	}
	return nil
}

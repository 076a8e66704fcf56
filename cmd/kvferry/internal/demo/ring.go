package demo

import (
	"context"
	"fmt"
	"slices"
)

// In a ring, each node has both roles: the node puts chunks to the next node, and receives chunks from the previous
// node. The pages that the node's engine reserves and the pages of received chunks belong to one pool.

// ringNodes is the number of nodes in a ring.
const ringNodes = 3

// RingModes lists the modes of nodes that have both roles.
func RingModes() []Mode {
	return slices.DeleteFunc(slices.Clone(pushPullModes), func(m Mode) bool { return m == PullDelayOffload })
}

// ringLines returns the lines that a mode adds to the configuration of a node that has both roles.
func (m Mode) ringLines(donePort uint16) string {
	if m == Push {
		return ""
	}
	if m == Layerwise {
		return "use_layerwise: true\n"
	}
	lines := fmt.Sprintf("pd_pull_mode: true\npd_pull_done_port: %d\npd_pull_pending_ttl: %d\n", donePort, offerSeconds)
	if m.isDelayed() {
		lines += "pd_delay_pull: true\n"
	}
	return lines
}

// ringPages is the size of a node's pool in pages. Half of the pool is for the chunks that the node's engine puts
// (engine_share_pct), and half is for the chunks that the node receives.
func (s shape) ringPages() int { return 2 * s.prefillPages }

// ringChunkLimit is the number of chunks that may be in flight to a node. It is the capacity of the node's part of the
// pool, or the number of chunks that the previous node can lend or compute.
func (m Mode) ringChunkLimit(s shape) int {
	if m.isDelayed() || m == Layerwise {
		return s.prefillPages * 3 / 4
	}
	return s.prefillPages
}

// startRing starts the nodes of the ring. The proxyLines are the configuration of a node's notifications to the proxy.
func (c *cluster) startRing(ctx context.Context, o *Options, proxyLines string) error {
	c.decodes = make([]decodeNode, ringNodes)
	for i := range c.decodes {
		ports, err := c.reservePorts(1)
		if err != nil {
			return err
		}
		err = c.startDecode(ctx, &c.decodes[i], newAdmission(o.Mode.ringChunkLimit(o.shape)), nodeSpec{
			name: fmt.Sprintf("node-%d", i), role: "both", number: i, lines: proxyLines + o.Mode.ringLines(ports[0]),
			kvferryLines: o.Mode.kvferryLines(o.shape), poolPages: o.shape.ringPages()}, o)
		if err != nil {
			return err
		}
	}
	return nil
}

package link

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// changedPeers is a list of the peers whose waiting requests should be examined again, in the order in which the peers
// changed. Each peer is listed once.
type changedPeers struct{ list []table.Handle }

// addPeer appends a peer unless the peer is listed already.
func (c *changedPeers) addPeer(h table.Handle, p *Outbound) {
	if !p.changed {
		p.changed = true
		c.list = append(c.list, h)
	}
}

// removePeer removes a peer that is being evicted.
func (c *changedPeers) removePeer(h table.Handle, p *Outbound) {
	if p.changed {
		p.changed = false
		i := slices.Index(c.list, h)
		c.list = slices.Delete(c.list, i, i+1)
	}
}

// popPeer removes and returns the peer that changed first, or zero if there is none. The caller clears the peer's
// changed mark.
func (c *changedPeers) popPeer() table.Handle {
	if len(c.list) == 0 {
		return 0
	}
	h := c.list[0]
	c.list = slices.Delete(c.list, 0, 1)
	return h
}

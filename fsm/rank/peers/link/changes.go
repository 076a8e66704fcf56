package link

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// changes is a list of the peers whose waiting requests should be examined again, in the order in which the peers
// changed. Each peer is listed once.
type changes struct{ list []table.Handle }

// add appends a peer unless the peer is listed already.
func (c *changes) add(h table.Handle, p *Outbound) {
	if !p.changed {
		p.changed = true
		c.list = append(c.list, h)
	}
}

// forget removes a peer that is being evicted.
func (c *changes) forget(h table.Handle, p *Outbound) {
	if p.changed {
		p.changed = false
		i := slices.Index(c.list, h)
		c.list = slices.Delete(c.list, i, i+1)
	}
}

// first removes and returns the peer that changed first, or zero if there is none. The caller clears the peer's changed
// mark.
func (c *changes) first() table.Handle {
	if len(c.list) == 0 {
		return 0
	}
	h := c.list[0]
	c.list = slices.Delete(c.list, 0, 1)
	return h
}

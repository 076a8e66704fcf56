package link

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// changes are the peers whose waiters should look again, in the order in which they changed, each once.
type changes struct{ list []table.Handle }

func (c *changes) add(h table.Handle, p *Outbound) {
	if !p.changed {
		p.changed = true
		c.list = append(c.list, h)
	}
}

// forget takes out a peer that goes.
func (c *changes) forget(h table.Handle, p *Outbound) {
	if p.changed {
		p.changed = false
		i := slices.Index(c.list, h)
		c.list = slices.Delete(c.list, i, i+1)
	}
}

// first takes out the one that changed first; zero if there is none. Its mark is the caller's to take off.
func (c *changes) first() table.Handle {
	if len(c.list) == 0 {
		return 0
	}
	h := c.list[0]
	c.list = slices.Delete(c.list, 0, 1)
	return h
}

package contract

import "github.com/kvferry/kvferry/effects"

// A scatter is in progress until the driver reports Scattered.
type scatter struct {
	ticket effects.Ticket
	pages  []place
}

// scattering checks that the pages have their newest generation and that nothing stores into the pages, that the
// outcome of the command is outstanding, and that the command has no second scatter in progress.
func (c *Checker) scattering(e *effects.Scatter) error {
	switch {
	case c.work[e.Ticket] != given:
		return broken(Machine, "it scatters chunks of ticket %d, which it was not given or has delivered", e.Ticket)
	case len(e.Pages) == 0:
		return broken(Machine, "it scatters nothing of ticket %d", e.Ticket)
	case c.scatters(e.Ticket):
		return broken(Machine, "it scatters chunks of ticket %d beside others of it", e.Ticket)
	}
	if err := c.begin(e.Corr, owed{verb: Scattering}); err != nil {
		return err
	}
	s := scatter{ticket: e.Ticket}
	for _, page := range e.Pages {
		at := place{page.Pool, page.Index}
		is := c.planes.pages[at]
		switch {
		case is.generation != page.Generation:
			return broken(Machine, "it scatters page %d in generation %d, which is not its newest published one",
				page.Index, page.Generation)
		case is.filling != 0:
			return broken(Machine, "it scatters page %d, into which %d stores", page.Index, is.filling)
		}
		is.scattered++
		c.planes.pages[at] = is
		s.pages = append(s.pages, at)
	}
	c.device[e.Corr] = s
	return nil
}

// checkScattered records the end of a scatter.
func (c *Checker) scattered(ev *effects.Scattered) error {
	for _, at := range c.device[ev.Corr].pages {
		is := c.planes.pages[at]
		is.scattered--
		c.planes.pages[at] = is
	}
	delete(c.device, ev.Corr)
	_, err := c.end(ev.Corr, Scattering)
	return err
}

// scatters reports whether a scatter of the command is in progress.
func (c *Checker) scatters(t effects.Ticket) bool {
	for _, s := range c.device {
		if s.ticket == t {
			return true
		}
	}
	return false
}

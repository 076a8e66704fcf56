package contract

import "github.com/kvferry/kvferry/effects"

// A scatterRecord is in progress until the driver reports Scattered.
type scatterRecord struct {
	ticket effects.Ticket
	pages  []pageID
}

// checkScatter checks that the pages have their newest generation and that nothing stores into the pages, that the
// outcome of the command is outstanding, and that the command has no second scatter in progress.
func (c *Checker) checkScatter(e *effects.Scatter) error {
	switch {
	case c.commands[e.Ticket] != commandGiven:
		return newBreach(Machine, "it scatters chunks of ticket %d, which it was not given or has delivered", e.Ticket)
	case len(e.Pages) == 0:
		return newBreach(Machine, "it scatters nothing of ticket %d", e.Ticket)
	case c.isScattering(e.Ticket):
		return newBreach(Machine, "it scatters chunks of ticket %d beside others of it", e.Ticket)
	}
	if err := c.beginEffect(e.Corr, pendingEffect{verb: Scattering}); err != nil {
		return err
	}
	s := scatterRecord{ticket: e.Ticket}
	for _, page := range e.Pages {
		at := pageID{page.Pool, page.Index}
		record := c.data.pages[at]
		switch {
		case record.generation != page.Generation:
			return newBreach(Machine, "it scatters page %d in generation %d, which is not its newest published one",
				page.Index, page.Generation)
		case record.filler != 0:
			return newBreach(Machine, "it scatters page %d, into which %d stores", page.Index, record.filler)
		}
		record.scatters++
		c.data.pages[at] = record
		s.pages = append(s.pages, at)
	}
	c.scatters[e.Corr] = s
	return nil
}

// checkScattered records the end of a scatter.
func (c *Checker) checkScattered(ev *effects.Scattered) error {
	for _, at := range c.scatters[ev.Corr].pages {
		record := c.data.pages[at]
		record.scatters--
		c.data.pages[at] = record
	}
	delete(c.scatters, ev.Corr)
	_, err := c.completeEffect(ev.Corr, Scattering)
	return err
}

// isScattering reports whether a scatter of the command is in progress.
func (c *Checker) isScattering(t effects.Ticket) bool {
	for _, s := range c.scatters {
		if s.ticket == t {
			return true
		}
	}
	return false
}

package contract

import "github.com/kvferry/kvferry/effects"

// copyOf is a Copy that is not settled.
type copyOf struct{ from, to []place }

// copying checks that both pages of each pair have their newest generation and the same length, and that nothing else
// accesses the destination or stores into the source.
func (p *planes) copying(e *effects.Copy) error {
	if len(e.Pairs) == 0 {
		return broken(Machine, "it copies nothing")
	}
	c := copyOf{}
	for _, pair := range e.Pairs {
		from, to := place{pair.From.Pool, pair.From.Index}, place{pair.To.Pool, pair.To.Index}
		src, dst := p.pages[from], p.pages[to]
		switch {
		case from == to:
			return broken(Machine, "it copies page %d to itself", from.index)
		case src.generation != pair.From.Generation || dst.generation != pair.To.Generation:
			return broken(Machine, "it copies page %d in generation %d to page %d in generation %d; "+
				"their newest published ones are %d and %d",
				from.index, pair.From.Generation, to.index, pair.To.Generation, src.generation, dst.generation)
		case pair.From.Length != pair.To.Length || pair.To.Length > dst.length:
			return broken(Machine, "it copies %d bytes of page %d to %d of page %d, which has %d",
				pair.From.Length, from.index, pair.To.Length, to.index, dst.length)
		case src.grant != 0 || src.filling != 0:
			return broken(Machine, "it copies page %d, into which others store", from.index)
		case dst.grant != 0:
			return broken(Machine, "it copies to page %d, which is under grant %d to store", to.index, dst.grant)
		}
		if err := p.still(to.index, dst); err != nil {
			return err
		}
		src.copied++
		dst.filling = e.Corr
		p.pages[from], p.pages[to] = src, dst
		c.from, c.to = append(c.from, from), append(c.to, to)
	}
	p.copies[e.Corr] = c
	return nil
}

// copySettled records that a copy is settled.
func (p *planes) copySettled(corr effects.Corr) {
	c := p.copies[corr]
	for i := range c.from {
		src := p.pages[c.from[i]]
		src.copied--
		p.pages[c.from[i]] = src
		dst := p.pages[c.to[i]]
		dst.filling = 0
		p.pages[c.to[i]] = dst
	}
	delete(p.copies, corr)
}

// checkCopyDone handles the completion of a copy, which a Settled follows if the copy is not settled.
func (c *Checker) copied(ev *effects.CopyDone) error {
	if _, err := c.end(ev.Corr, Copying); err != nil {
		return err
	}
	if !ev.Settled {
		c.corrs[ev.Corr] = owed{verb: Settling}
		c.open++
		return nil
	}
	c.planes.copySettled(ev.Corr)
	return nil
}

// givesBack checks that no copy reads the memory that is returned to the engine.
func (p *planes) givesBack(pages []effects.Page) error {
	for _, page := range pages {
		if n := p.pages[place{page.Pool, page.Index}].copied; n > 0 {
			return broken(Machine, "it gives page %d back to its engine while %d copies read it", page.Index, n)
		}
	}
	return nil
}

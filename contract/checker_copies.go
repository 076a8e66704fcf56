package contract

import "github.com/kvferry/kvferry/effects"

// copyRecord is a Copy that is not settled.
type copyRecord struct{ from, to []pageID }

// checkCopy checks that both pages of each pair have their newest generation and the same length, and that nothing else
// accesses the destination or stores into the source.
func (p *dataState) checkCopy(e *effects.Copy) error {
	if len(e.Pairs) == 0 {
		return newBreach(Machine, "it copies nothing")
	}
	c := copyRecord{}
	for _, pair := range e.Pairs {
		from, to := pageID{pair.From.Pool, pair.From.Index}, pageID{pair.To.Pool, pair.To.Index}
		src, dst := p.pages[from], p.pages[to]
		switch {
		case from == to:
			return newBreach(Machine, "it copies page %d to itself", from.index)
		case src.generation != pair.From.Generation || dst.generation != pair.To.Generation:
			return newBreach(Machine, "it copies page %d in generation %d to page %d in generation %d; "+
				"their newest published ones are %d and %d",
				from.index, pair.From.Generation, to.index, pair.To.Generation, src.generation, dst.generation)
		case pair.From.Length != pair.To.Length || pair.To.Length > dst.length:
			return newBreach(Machine, "it copies %d bytes of page %d to %d of page %d, which has %d",
				pair.From.Length, from.index, pair.To.Length, to.index, dst.length)
		// On leased planes a commit ends a grant, which the driver does not see.
		case p.fenced && src.writeGrant != 0 || src.filler != 0:
			return newBreach(Machine, "it copies page %d, into which others store", from.index)
		case p.fenced && dst.writeGrant != 0:
			return newBreach(Machine, "it copies to page %d, which is under grant %d to store", to.index, dst.writeGrant)
		}
		if err := p.checkIdle(to.index, dst); err != nil {
			return err
		}
		src.copies++
		dst.filler = e.Corr
		p.pages[from], p.pages[to] = src, dst
		c.from, c.to = append(c.from, from), append(c.to, to)
	}
	p.copies[e.Corr] = c
	return nil
}

// settleCopy records that a copy is settled.
func (p *dataState) settleCopy(corr effects.Corr) {
	c := p.copies[corr]
	for i := range c.from {
		src := p.pages[c.from[i]]
		src.copies--
		p.pages[c.from[i]] = src
		dst := p.pages[c.to[i]]
		dst.filler = 0
		p.pages[c.to[i]] = dst
	}
	delete(p.copies, corr)
}

// checkCopyDone handles the completion of a copy, which a Settled follows if the copy is not settled.
func (c *Checker) checkCopyDone(ev *effects.CopyDone) error {
	if _, err := c.completeEffect(ev.Corr, Copying); err != nil {
		return err
	}
	if !ev.Settled {
		c.corrs[ev.Corr] = pendingEffect{verb: Settling}
		c.pendingCount++
		return nil
	}
	c.data.settleCopy(ev.Corr)
	return nil
}

// checkReturnedPages checks that no copy reads the memory that is returned to the engine.
func (p *dataState) checkReturnedPages(pages []effects.Page) error {
	for _, page := range pages {
		if n := p.pages[pageID{page.Pool, page.Index}].copies; n > 0 {
			return newBreach(Machine, "it gives page %d back to its engine while %d copies read it", page.Index, n)
		}
	}
	return nil
}

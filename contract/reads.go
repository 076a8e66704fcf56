package contract

import "github.com/kvferry/kvferry/effects"

// checkReadGrant checks a grant to read: the pages have the generation that the grant names, and nothing stores into
// the pages (M1).
func (p *planes) lent(e *effects.Grant) error {
	g := grant{peer: e.Peer, read: true}
	for _, page := range e.Pages {
		at := place{page.Pool, page.Index}
		is := p.pages[at]
		switch {
		case is.generation != page.Generation:
			return broken(Machine, "it grants page %d to be read in generation %d; its newest published one is %d",
				page.Index, page.Generation, is.generation)
		case page.Length > is.length:
			return broken(Machine, "it grants %d bytes of page %d to be read; it has %d",
				page.Length, page.Index, is.length)
		// On leased planes a grant also ends by the peer's message, of which no driver knows.
		case p.fenced && is.grant != 0:
			return broken(Machine, "it grants page %d to be read, which is under grant %d to store", page.Index, is.grant)
		case is.filling != 0:
			return broken(Machine, "it grants page %d to be read, into which %d stores", page.Index, is.filling)
		}
		is.lent++
		p.pages[at] = is
		g.pages = append(g.pages, at)
	}
	p.grants[e.ID] = g
	return nil
}

// checkRead checks a read: the local pages belong to the read alone until it is settled.
func (p *planes) filling(e *effects.Transfer) error {
	for i := range e.Pairs {
		local := e.Pairs[i].Local
		at := place{local.Pool, local.Index}
		is := p.pages[at]
		if p.fenced && is.grant != 0 {
			return broken(Machine, "it reads into page %d, which is under grant %d to store", local.Index, is.grant)
		}
		if err := p.still(local.Index, is); err != nil {
			return err
		}
		is.filling = e.Corr
		p.pages[at] = is
		p.reads[e.Corr] = append(p.reads[e.Corr], at)
	}
	return nil
}

// settled records that a read or copy is settled; a push has no record here.
func (p *planes) settled(corr effects.Corr) {
	for _, at := range p.reads[corr] {
		is := p.pages[at]
		is.filling = 0
		p.pages[at] = is
	}
	delete(p.reads, corr)
	p.copySettled(corr)
}

// still returns an error if a page may not be stored into or get a new generation: a peer may read the page, a read or
// copy fills the page, or the page is scattered or copied. On leased planes time alone may end a grant to read (M4).
func (p *planes) still(index uint32, is life) error {
	switch {
	case p.fenced && is.lent > 0:
		return broken(Machine, "it gives page %d away, which is under %d grants to be read", index, is.lent)
	case is.filling != 0:
		return broken(Machine, "it gives page %d away, into which %d stores", index, is.filling)
	case is.scattered > 0:
		return broken(Machine, "it gives page %d away, which is scattered", index)
	case is.copied > 0:
		return broken(Machine, "it gives page %d away, which is copied", index)
	}
	return nil
}

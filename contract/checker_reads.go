package contract

import "github.com/kvferry/kvferry/effects"

// checkReadGrant checks a grant to read: the pages have the generation that the grant names, and nothing stores into
// the pages (M1).
func (p *dataState) checkReadGrant(e *effects.Grant) error {
	g := grantRecord{peer: e.Peer, read: true}
	for _, page := range e.Pages {
		at := pageID{page.Pool, page.Index}
		record := p.pages[at]
		switch {
		case record.generation != page.Generation:
			return newBreach(Machine, "it grants page %d to be read in generation %d; its newest published one is %d",
				page.Index, page.Generation, record.generation)
		case page.Length > record.length:
			return newBreach(Machine, "it grants %d bytes of page %d to be read; it has %d",
				page.Length, page.Index, record.length)
		// On leased planes a grant also ends by the peer's message, of which no driver knows.
		case p.fenced && record.writeGrant != 0:
			return newBreach(Machine, "it grants page %d to be read, which is under grant %d to store", page.Index, record.writeGrant)
		case record.filler != 0:
			return newBreach(Machine, "it grants page %d to be read, into which %d stores", page.Index, record.filler)
		}
		record.readGrants++
		p.pages[at] = record
		g.pages = append(g.pages, at)
	}
	p.grants[e.ID] = g
	return nil
}

// checkRead checks a read: the local pages belong to the read alone until it is settled.
func (p *dataState) checkRead(e *effects.Transfer) error {
	for i := range e.Pairs {
		local := e.Pairs[i].Local
		at := pageID{local.Pool, local.Index}
		record := p.pages[at]
		if p.fenced && record.writeGrant != 0 {
			return newBreach(Machine, "it reads into page %d, which is under grant %d to store", local.Index, record.writeGrant)
		}
		if err := p.checkIdle(local.Index, record); err != nil {
			return err
		}
		record.filler = e.Corr
		p.pages[at] = record
		p.reads[e.Corr] = append(p.reads[e.Corr], at)
	}
	return nil
}

// settleTransfer records that a read or copy is settled; a push has no record here.
func (p *dataState) settleTransfer(corr effects.Corr) {
	for _, at := range p.reads[corr] {
		record := p.pages[at]
		record.filler = 0
		p.pages[at] = record
	}
	delete(p.reads, corr)
	p.settleCopy(corr)
}

// checkIdle returns an error if a page may not be stored into or get a new generation: a peer may read the page, a read
// or copy fills the page, or the page is scattered or copied. On leased planes time alone may end a grant to read (M4).
func (p *dataState) checkIdle(index uint32, record pageRecord) error {
	switch {
	case p.fenced && record.readGrants > 0:
		return newBreach(Machine, "it gives page %d away, which is under %d grants to be read", index, record.readGrants)
	case record.filler != 0:
		return newBreach(Machine, "it gives page %d away, into which %d stores", index, record.filler)
	case record.scatters > 0:
		return newBreach(Machine, "it gives page %d away, which is scattered", index)
	case record.copies > 0:
		return newBreach(Machine, "it gives page %d away, which is copied or compared", index)
	}
	return nil
}

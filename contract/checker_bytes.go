package contract

import "github.com/kvferry/kvferry/effects"

// checkCarriedPages checks that a Send has room for the carried pages, and that nothing stores into these pages.
func (p *dataState) checkCarriedPages(e *effects.Send) error {
	bytes := 0
	for _, page := range e.Carries {
		record := p.pages[pageID{page.Pool, page.Index}]
		switch {
		case record.generation != page.Generation:
			return newBreach(Machine, "it sends page %d in generation %d, whose newest published one is %d",
				page.Index, page.Generation, record.generation)
		case p.fenced && record.writeGrant != 0 || record.filler != 0:
			return newBreach(Machine, "it sends page %d, into which others store", page.Index)
		}
		bytes += int(page.Length)
	}
	if bytes > len(e.Body) {
		return newBreach(Machine, "it sends %d bytes of pages in a body of %d", bytes, len(e.Body))
	}
	return nil
}

// checkStore checks that nothing else accesses a page into which the driver is to copy bytes, and that the bytes fit
// the page.
func (p *dataState) checkStore(e *effects.Store) error {
	record := p.pages[pageID{e.Page.Pool, e.Page.Index}]
	switch {
	case record.generation != e.Page.Generation:
		return newBreach(Machine, "it stores into page %d in generation %d, whose newest published one is %d",
			e.Page.Index, e.Page.Generation, record.generation)
	case len(e.Bytes) != int(e.Page.Length) || e.Page.Length > record.length:
		return newBreach(Machine, "it stores %d bytes into page %d as %d, which has %d", len(e.Bytes), e.Page.Index,
			e.Page.Length, record.length)
	case p.fenced && record.writeGrant != 0:
		return newBreach(Machine, "it stores into page %d, which is under grant %d to store", e.Page.Index, record.writeGrant)
	}
	return p.checkIdle(e.Page.Index, record)
}

package contract

import "github.com/kvferry/kvferry/effects"

// carries checks that a Send has room for the carried pages, and that nothing stores into these pages.
func (p *planes) carries(e *effects.Send) error {
	bytes := 0
	for _, page := range e.Carries {
		x := p.pages[place{page.Pool, page.Index}]
		switch {
		case x.generation != page.Generation:
			return broken(Machine, "it sends page %d in generation %d, whose newest published one is %d",
				page.Index, page.Generation, x.generation)
		case x.grant != 0 || x.filling != 0:
			return broken(Machine, "it sends page %d, into which others store", page.Index)
		}
		bytes += int(page.Length)
	}
	if bytes > len(e.Body) {
		return broken(Machine, "it sends %d bytes of pages in a body of %d", bytes, len(e.Body))
	}
	return nil
}

// storing checks that nothing else accesses a page into which the driver is to copy bytes, and that the bytes fit the
// page.
func (p *planes) storing(e *effects.Store) error {
	x := p.pages[place{e.Page.Pool, e.Page.Index}]
	switch {
	case x.generation != e.Page.Generation:
		return broken(Machine, "it stores into page %d in generation %d, whose newest published one is %d",
			e.Page.Index, e.Page.Generation, x.generation)
	case len(e.Bytes) != int(e.Page.Length) || e.Page.Length > x.length:
		return broken(Machine, "it stores %d bytes into page %d as %d, which has %d", len(e.Bytes), e.Page.Index,
			e.Page.Length, x.length)
	case x.grant != 0:
		return broken(Machine, "it stores into page %d, which is under grant %d to store", e.Page.Index, x.grant)
	}
	return p.still(e.Page.Index, x)
}

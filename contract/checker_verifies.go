package contract

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// checkVerify checks that the pages have their newest generation, and records that the driver reads them.
func (p *dataState) checkVerify(e *effects.Verify) error {
	if len(e.Pages) == 0 {
		return newBreach(Machine, "it compares nothing")
	}
	for _, page := range e.Pages {
		at := pageID{page.Pool, page.Index}
		record := p.pages[at]
		if record.generation != page.Generation {
			return newBreach(Machine, "it compares page %d in generation %d, which is not its newest published one",
				page.Index, page.Generation)
		}
		record.copies++
		p.pages[at] = record
	}
	p.verifies[e.Corr] = slices.Clone(e.Pages)
	return nil
}

// endVerify checks that the driver has compared every page once, and records that it does not read the pages any more.
func (p *dataState) endVerify(ev *effects.Verified) error {
	pages := p.verifies[ev.Corr]
	delete(p.verifies, ev.Corr)
	rest := ev.Pages
	for _, page := range pages {
		at := pageID{page.Pool, page.Index}
		record := p.pages[at]
		record.copies--
		p.pages[at] = record
		if len(rest) > 0 && rest[0] == page {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 || len(ev.Pages)+int(ev.Corrupt) != len(pages) {
		return newBreach(Driver, "of %d pages to compare, %d are as stated, %d are not, and %d were not asked for", len(pages),
			len(ev.Pages), ev.Corrupt, len(rest))
	}
	return nil
}

package staging

import "github.com/kvferry/kvferry/fsm/rank/env"

// pagesWanted returns the number of staging pages that a fetch can use: two batches, or, if fewer, the unread items
// plus the pages in use.
func (p *Pipeline) pagesWanted(f *fetch) uint32 {
	if f.delivered {
		return 0
	}
	return min(2*p.cfg.Depth, f.unreadItems+f.stagedPages-uint32(len(f.idlePages)))
}

// batchDepth returns the limit of items in the fetch's next batch: the configured depth, or, while the fetch is short
// of pages, so few that two batches fit into the pages of the fetch.
func (p *Pipeline) batchDepth(f *fetch) uint32 {
	if f.stagedPages >= p.pagesWanted(f) {
		return p.cfg.Depth
	}
	return max(1, f.stagedPages/2)
}

// AdmitFetches gives staging pages to fetches that are short of pages. The caller calls AdmitFetches when pages became
// free. The order is first come, first served: the oldest fetch takes all that it can use before the next fetch takes
// any page. A fetch begins even with a single page, with smaller batches, because pages that other commands hold may
// not come back in time. AdmitFetches gives only as many pages as the work budget of the step allows; the next call
// goes on.
func (p *Pipeline) AdmitFetches(v *env.Env, rights Rights) {
	for h := p.shortFetches.Front(); h != 0 && v.StagingPool().FreePages() > 0 && p.stagedPages < p.cfg.StagingPages; {
		if !v.Work.HasBudget() {
			v.Out.Mark(Marks.StagingCut)
			return
		}
		next, f := p.fetches.Next(h), p.fetches.Get(h)
		took := p.takePages(v, f)
		if f.stagedPages >= p.pagesWanted(f) {
			p.fetches.Unlink(&p.shortFetches, h)
		}
		if took {
			p.advanceFetch(v, rights, h, f)
			p.releaseUnused(v, h, f)
		}
		h = next
	}
}

// PagesLacking returns how many more pages AdmitFetches could give to fetches that are short, if the pages were free.
// Each of these fetches lacks at least a page, so PagesLacking visits at most as many fetches as there are staging
// pages.
func (p *Pipeline) PagesLacking() (n uint32) {
	room := p.cfg.StagingPages - p.stagedPages
	for h := p.shortFetches.Front(); h != 0 && n < room; h = p.fetches.Next(h) {
		f := p.fetches.Get(h)
		n += p.pagesWanted(f) - min(f.stagedPages, p.pagesWanted(f))
	}
	return min(n, room)
}

// takePages takes the free pages that a fetch wants, and reports whether it took any.
func (p *Pipeline) takePages(v *env.Env, f *fetch) bool {
	wanted := p.pagesWanted(f)
	if f.stagedPages >= wanted {
		return false
	}
	n := min(wanted-f.stagedPages, v.StagingPool().FreePages(), p.cfg.StagingPages-p.stagedPages)
	// The pages keep one generation for all batches of the fetch. That is safe because only reads of this fetch store
	// into the pages, and no read of a page is in flight when the next read is submitted.
	idleBefore := len(f.idlePages)
	f.idlePages = v.StagingPool().TakePages(n, f.idlePages)
	for i := range f.idlePages[idleBefore:] {
		f.idlePages[idleBefore+i].Length = uint32(p.cfg.PageBytes)
	}
	v.Work.SpendRows(int(n))
	v.Out.Publish(f.idlePages[idleBefore:])
	f.stagedPages += n
	p.stagedPages += n
	p.stagedPagesMax = max(p.stagedPagesMax, p.stagedPages)
	return true
}

// returnIdlePages returns the idle pages to the pool for which the fetch has no more use.
func (p *Pipeline) returnIdlePages(v *env.Env, f *fetch) {
	for wanted := p.pagesWanted(f); f.stagedPages > wanted && len(f.idlePages) > 0; {
		last := len(f.idlePages) - 1
		v.StagingPool().DropRef(f.idlePages[last])
		f.idlePages = f.idlePages[:last]
		f.stagedPages--
		p.stagedPages--
	}
}

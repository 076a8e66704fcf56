package staging

import "github.com/kvferry/kvferry/fsm/rank/env"

// wants returns the number of staging pages that a fetch can use: two batches, or, if fewer, the unread items plus the
// pages in use.
func (p *Pipeline) wants(f *fetch) uint32 {
	if f.delivered {
		return 0
	}
	return min(2*p.cfg.Depth, f.unread+f.staged-uint32(len(f.idle)))
}

// depth returns the limit of items in the fetch's next batch: the configured depth, or, while the fetch is short of
// pages, so few that two batches fit into the pages of the fetch.
func (p *Pipeline) depth(f *fetch) uint32 {
	if f.staged >= p.wants(f) {
		return p.cfg.Depth
	}
	return max(1, f.staged/2)
}

// Admit gives staging pages to fetches that are short of pages. The caller calls Admit when pages became free. The
// order is first come, first served: the oldest fetch takes all that it can use before the next fetch takes any page. A
// fetch begins even with a single page, with smaller batches, because pages that other commands hold may not come back
// in time. Admit gives only as many pages as the work budget of the step allows; the next call goes on.
func (p *Pipeline) Admit(v *env.Env, of Rights) {
	for h := p.short.Front(); h != 0 && v.StagedIn().Free() > 0 && p.staged < p.cfg.StagingPages; {
		if !v.Work.Left() {
			v.Out.Mark(Marks.StagingCut)
			return
		}
		next, f := p.fetches.Next(h), p.fetches.Get(h)
		got := p.take(v, f)
		if f.staged >= p.wants(f) {
			p.fetches.Unlink(&p.short, h)
		}
		if got {
			p.pump(v, of, h, f)
			p.tidy(v, h, f)
		}
		h = next
	}
}

// Lacks returns how many more pages Admit could give to fetches that are short, if the pages were free. Each of these
// fetches lacks at least a page, so Lacks visits at most as many fetches as there are staging pages.
func (p *Pipeline) Lacks() (n uint32) {
	room := p.cfg.StagingPages - p.staged
	for h := p.short.Front(); h != 0 && n < room; h = p.fetches.Next(h) {
		f := p.fetches.Get(h)
		n += p.wants(f) - min(f.staged, p.wants(f))
	}
	return min(n, room)
}

// take takes the free pages that a fetch wants, and reports whether it took any.
func (p *Pipeline) take(v *env.Env, f *fetch) bool {
	wants := p.wants(f)
	if f.staged >= wants {
		return false
	}
	n := min(wants-f.staged, v.StagedIn().Free(), p.cfg.StagingPages-p.staged)
	// The pages keep one generation for all batches of the fetch. That is safe because only reads of this fetch store
	// into the pages, and no read of a page is in flight when the next read is submitted.
	was := len(f.idle)
	f.idle = v.StagedIn().Take(n, f.idle)
	for i := range f.idle[was:] {
		f.idle[was+i].Length = uint32(p.cfg.PageBytes)
	}
	v.Work.Spend(int(n))
	v.Out.Publish(f.idle[was:])
	f.staged += n
	p.staged += n
	p.most = max(p.most, p.staged)
	return true
}

// trim returns the idle pages to the pool for which the fetch has no more use.
func (p *Pipeline) trim(v *env.Env, f *fetch) {
	for wants := p.wants(f); f.staged > wants && len(f.idle) > 0; {
		last := len(f.idle) - 1
		v.StagedIn().Unref(f.idle[last])
		f.idle = f.idle[:last]
		f.staged--
		p.staged--
	}
}

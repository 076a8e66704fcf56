package staging

import "github.com/kvferry/kvferry/fsm/rank/env"

// wants is how many staging pages a fetch can use: two batches, or what it has left to read
// beside what is in use already.
func (p *Pipeline) wants(f *fetch) uint32 {
	if f.delivered {
		return 0
	}
	return min(2*p.cfg.Depth, f.unread+f.staged-uint32(len(f.idle)))
}

// depth is the most items of the fetch's next batch: as configured, or while it is short
// of pages so few that two batches fit in those that it has.
func (p *Pipeline) depth(f *fetch) uint32 {
	if f.staged >= p.wants(f) {
		return p.cfg.Depth
	}
	return max(1, f.staged/2)
}

// Admit gives staging pages to fetches that are short of them. It is called when pages
// became free. First come, first served: the oldest takes all that it can use before the
// next takes any. But it begins with what there is, be it one page, and with smaller
// batches: pages that other commands hold may not come back in time to wait for them. It
// gives as many as the step has work for, and the rest when it is called in the next one.
func (p *Pipeline) Admit(v *env.Env, of Rights) {
	for h := p.short.Front(); h != 0 && v.StagedIn().Free() > 0 && p.staged < p.cfg.StagingMax; {
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

// Lacks is how many pages more Admit could give to fetches that are short, were they free. Each lacks one at least: so
// it looks at no more of them than there are staging pages.
func (p *Pipeline) Lacks() (n uint32) {
	room := p.cfg.StagingMax - p.staged
	for h := p.short.Front(); h != 0 && n < room; h = p.fetches.Next(h) {
		f := p.fetches.Get(h)
		n += p.wants(f) - min(f.staged, p.wants(f))
	}
	return min(n, room)
}

// take takes what there is of what the fetch wants, which is at least one page.
func (p *Pipeline) take(v *env.Env, f *fetch) bool {
	wants := p.wants(f)
	if f.staged >= wants {
		return false
	}
	n := min(wants-f.staged, v.StagedIn().Free(), p.cfg.StagingMax-p.staged)
	// Their one life lasts for all batches of the fetch: only reads of its own store
	// into them, and none is under way when the next one is submitted.
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

// trim gives back the idle pages that the fetch has no more use for.
func (p *Pipeline) trim(v *env.Env, f *fetch) {
	for wants := p.wants(f); f.staged > wants && len(f.idle) > 0; {
		last := len(f.idle) - 1
		v.StagedIn().Unref(f.idle[last])
		f.idle = f.idle[:last]
		f.staged--
		p.staged--
	}
}

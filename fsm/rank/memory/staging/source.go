package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file ends the fetches that need a source or a link that is gone. All fetches may need the same source or link.
// Therefore a step ends only as many as the work budget allows.

// WithdrawFrom ends, with code, the fetches that still need a source after the lease of the source is over.
// WithdrawFrom considers only the fetches with tickets that satisfy meant. Fetches that have read everything they
// wanted from the source go on. WithdrawFrom returns true when all these fetches have ended; otherwise the caller calls
// it again in the next step.
func (p *Pipeline) WithdrawFrom(
	v *env.Env, id table.Handle, code effects.Code, meant func(effects.Ticket) bool,
) (all bool) {
	any := false
	for slot := range p.fetches.Slots() {
		h := p.fetches.At(slot)
		if h == 0 || p.sourceOf(v, h, func(s *source) bool { return s.ID == id }) == nil ||
			!meant(p.fetches.Get(h).ticket) {
			continue
		}
		// End at least one fetch, even if passing over the others has used up the work budget: the next step would pass
		// over them again.
		if any && !v.Work.Left() {
			return false
		}
		any = true
		f := p.fetches.Get(h)
		v.Work.Spend(len(f.items))
		v.Out.Mark(Marks.SourceWithdrawn)
		s := p.sourceOf(v, h, func(s *source) bool { return s.ID == id })
		p.end(v, h, f, code, s.why("offer", "taken back, or over,"))
	}
	return true
}

// OnLinkLost condemns the fetches that still need a source over this link, and begins to end them. From now on no read
// over the link is begun.
func (p *Pipeline) OnLinkLost(v *env.Env, link effects.Link) {
	if p.fetches.Len() == 0 {
		return
	}
	p.lost = append(p.lost, link)
	p.losing.Want()
	p.EndLost(v)
}

// EndLost goes on with ending condemned fetches, within the work budget. The lost links are recorded until no fetch can
// need them: at most one more link for each step, and a pass takes at most as many steps as there are fetches.
func (p *Pipeline) EndLost(v *env.Env) {
	for p.losing.Under() {
		ended := p.losing.Go(v.Work, 1, func(_ uint8, slot int32) kernel.Where {
			if h := p.fetches.At(slot); h != 0 {
				p.endLost(v, h)
			}
			return kernel.At(slot < p.fetches.Slots())
		})
		if !ended {
			v.Out.Mark(Marks.LossCut)
			return
		}
	}
	p.lost = p.lost[:0]
}

// endLost ends the fetch h if the fetch still needs a lost link.
func (p *Pipeline) endLost(v *env.Env, h table.Handle) {
	s := p.sourceOf(v, h, func(s *source) bool { return slices.Contains(p.lost, s.Link) })
	if s == nil {
		return
	}
	f := p.fetches.Get(h)
	v.Work.Spend(len(f.items))
	v.Out.Mark(Marks.SourceLost)
	p.end(v, h, f, effects.PeerLost, s.why("data plane", "gone"))
}

// sourceOf returns the first source of a fetch that satisfies is and that has reads in flight or still to be submitted.
// sourceOf returns nil if there is none, or if the fetch was delivered.
func (p *Pipeline) sourceOf(v *env.Env, h table.Handle, is func(*source) bool) *source {
	f := p.fetches.Get(h)
	if f.delivered {
		return nil
	}
	v.Work.Looks(len(f.sources))
	for i := range f.sources {
		if s := &f.sources[i]; is(s) && (s.unread > 0 || s.read != 0) {
			return s
		}
	}
	return nil
}

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

// WithdrawSource ends, with code, the fetches that still need a source after the lease of the source is over.
// WithdrawSource considers only the fetches with tickets for which matches returns true. Fetches that have read
// everything they wanted from the source go on. WithdrawSource returns true when all these fetches have ended;
// otherwise the caller calls it again in the next step.
func (p *Pipeline) WithdrawSource(
	v *env.Env, id table.Handle, code effects.Code, matches func(effects.Ticket) bool,
) (finished bool) {
	endedOne := false
	for slot := range p.fetches.Slots() {
		h := p.fetches.At(slot)
		if h == 0 || p.activeSource(v, h, func(s *source) bool { return s.ID == id }) == nil ||
			!matches(p.fetches.Get(h).ticket) {
			continue
		}
		// End at least one fetch, even if passing over the others has used up the work budget: the next step would pass
		// over them again.
		if endedOne && !v.Work.HasBudget() {
			return false
		}
		endedOne = true
		f := p.fetches.Get(h)
		v.Work.SpendRows(len(f.items))
		v.Out.Mark(Marks.SourceWithdrawn)
		s := p.activeSource(v, h, func(s *source) bool { return s.ID == id })
		p.endFetch(v, h, f, code, s.failureReason("offer", "taken back, or over,"))
	}
	return true
}

// OnLinkLost condemns the fetches that still need a source over this link, and begins to end them. From now on no read
// over the link is begun.
func (p *Pipeline) OnLinkLost(v *env.Env, link effects.Link) {
	if p.fetches.Len() == 0 {
		return
	}
	p.lostLinks = append(p.lostLinks, link)
	p.lossSweep.RequestPass()
	p.ContinueLossSweep(v)
}

// ContinueLossSweep goes on with ending condemned fetches, within the work budget. The lost links are recorded until no
// fetch can need them: at most one more link for each step, and a pass takes at most as many steps as there are
// fetches.
func (p *Pipeline) ContinueLossSweep(v *env.Env) {
	for p.lossSweep.IsRunning() {
		ended := p.lossSweep.ContinuePass(v.Work, 1, func(_ uint8, slot int32) kernel.VisitResult {
			if h := p.fetches.At(slot); h != 0 {
				p.endIfLost(v, h)
			}
			return kernel.NextSlotIf(slot < p.fetches.Slots())
		})
		if !ended {
			v.Out.Mark(Marks.LossCut)
			return
		}
	}
	p.lostLinks = p.lostLinks[:0]
}

// endIfLost ends the fetch h if the fetch still needs a lost link.
func (p *Pipeline) endIfLost(v *env.Env, h table.Handle) {
	s := p.activeSource(v, h, func(s *source) bool { return slices.Contains(p.lostLinks, s.Link) })
	if s == nil {
		return
	}
	f := p.fetches.Get(h)
	v.Work.SpendRows(len(f.items))
	v.Out.Mark(Marks.SourceLost)
	p.endFetch(v, h, f, effects.PeerLost, s.failureReason("data plane", "gone"))
}

// activeSource returns the first source of a fetch for which matches returns true and that has reads in flight or still
// to be submitted. activeSource returns nil if there is none, or if the fetch was delivered.
func (p *Pipeline) activeSource(v *env.Env, h table.Handle, matches func(*source) bool) *source {
	f := p.fetches.Get(h)
	if f.delivered {
		return nil
	}
	v.Work.SpendLooks(len(f.sources))
	for i := range f.sources {
		if s := &f.sources[i]; matches(s) && (s.unreadItems > 0 || s.read != 0) {
			return s
		}
	}
	return nil
}

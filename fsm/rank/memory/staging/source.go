package staging

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// All fetches there are may want to read one source, or over one link. So as many end in a step as it has work for.

// WithdrawFrom ends, with code, the fetches that still need a source whose grant is over, and
// whose tickets are meant. Those that have read all they wanted from it go on. It says whether
// all have ended: if not, it is called again in the next step.
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
		if any && !v.Work.Left() { // One ends even if passing others over took it all: they would take it again.
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

// OnLinkLost condemns the fetches that still need a source behind this link, and begins to end
// them. No read is begun over it from now on.
func (p *Pipeline) OnLinkLost(v *env.Env, link effects.Link) {
	if p.fetches.Len() == 0 {
		return
	}
	p.lost = append(p.lost, link)
	p.losing.Want()
	p.EndLost(v)
}

// EndLost goes on with that while there is work. The lost links are known until nobody is left
// who may need them: one more for each step at the most, and a pass takes no more steps than
// there are fetches.
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

// sourceOf is the first source of a fetch that is one of these, and of which there are reads to do, or under way; nil
// if there is none.
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

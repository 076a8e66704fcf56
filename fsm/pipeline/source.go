package pipeline

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Extend notes that our right to read from a source was renewed until notAfter.
func (p *Pipeline) Extend(id table.Handle, notAfter effects.Time) {
	for slot := range p.fetches.Slots() {
		if f := p.fetches.Get(p.fetches.At(slot)); f != nil {
			for i := range f.sources {
				if s := &f.sources[i]; s.ID == id {
					s.NotAfter = max(s.NotAfter, notAfter)
				}
			}
		}
	}
}

// Withdraw ends, with code, the fetches that still need a source whose grant is over.
// Those that have read all they wanted from it go on.
func (p *Pipeline) Withdraw(v *env.Env, id table.Handle, code effects.Code) {
	p.WithdrawFrom(v, id, code, func(effects.Ticket) bool { return true })
}

// WithdrawFrom does so to those of the fetches whose tickets are meant.
func (p *Pipeline) WithdrawFrom(v *env.Env, id table.Handle, code effects.Code, meant func(effects.Ticket) bool) {
	for slot := range p.fetches.Slots() {
		if h := p.fetches.At(slot); h != 0 && p.sourceOf(h, id, 0) != nil && meant(p.fetches.Get(h).ticket) {
			v.Out.Mark(MarkSourceWithdrawn)
			p.end(v, h, p.fetches.Get(h), code, p.sourceOf(h, id, 0).why("offer", "taken back, or over,"))
		}
	}
}

// OnLinkLost ends the fetches that still need a source behind this link.
func (p *Pipeline) OnLinkLost(v *env.Env, link effects.Link) {
	for slot := range p.fetches.Slots() {
		if h := p.fetches.At(slot); h != 0 && p.sourceOf(h, 0, link) != nil {
			v.Out.Mark(MarkSourceLost)
			p.end(v, h, p.fetches.Get(h), effects.PeerLost, p.sourceOf(h, 0, link).why("data plane", "gone"))
		}
	}
}

// sourceOf is the first source of a fetch with this id, or behind this link, of which there are reads to do, or under
// way; nil if there is none.
func (p *Pipeline) sourceOf(h, id table.Handle, link effects.Link) *source {
	f := p.fetches.Get(h)
	if f.delivered {
		return nil
	}
	for i := range f.sources {
		s := &f.sources[i]
		if (id != 0 && s.ID == id || link != 0 && s.Link == link) && (s.unread > 0 || s.read != 0) {
			return s
		}
	}
	return nil
}

package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is what something in this room is in, for those who count what was
// tried. It decides nothing.
type Situation uint8

// Situations. Delivered fetches stay until nothing touches their pages.
const (
	Gone       Situation = iota // what was meant is no more, or never was
	Waiting                     // it has no staging page, and moves nothing
	Reading                     // and nothing is scattered
	Scattering                  // and nothing is read
	Overlapping
	DeliveredReading
	DeliveredScattering
	DeliveredOverlapping
)

// SituationNames are the names of the situations, in their order.
func SituationNames() []string {
	return []string{"gone", "fetch waiting", "fetch reading", "fetch scattering", "fetch overlapping",
		"delivered fetch reading", "delivered fetch scattering", "delivered fetch overlapping"}
}

// SituationOf is that of the fetch that a command means.
func (p *Pipeline) SituationOf(t effects.Ticket) Situation { return p.situation(p.find(t)) }

// SituationFor is that of what a completion or a deadline is for.
func (p *Pipeline) SituationFor(ref kernel.Ref) Situation { return p.situation(ref.Subject) }

func (p *Pipeline) situation(h table.Handle) Situation {
	f := p.fetches.Get(h)
	if f == nil {
		return Gone
	}
	is := Waiting
	for i := range f.halves {
		switch f.halves[i].state {
		case reading:
			is += Reading - Waiting
		case scattering:
			is += Scattering - Waiting
		case empty, full:
		}
	}
	if f.delivered {
		is += DeliveredReading - Reading
	}
	return is
}

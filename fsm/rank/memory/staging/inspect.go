package staging

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Situation is the state of a fetch, for tools that count which situations were tested. It has no influence on
// behaviour.
type Situation uint8

// The situations. A delivered fetch stays until nothing touches its pages.
const (
	NoFetch    Situation = iota // the fetch is gone, or never existed
	Waiting                     // the fetch has no staging page, and moves nothing
	Reading                     // and no scatter is in progress
	Scattering                  // and no read is in progress
	Overlapping
	DeliveredReading
	DeliveredScattering
	DeliveredOverlapping
)

// SituationNames returns the names of the situations, in order.
func SituationNames() []string {
	return []string{"gone", "fetch waiting", "fetch reading", "fetch scattering", "fetch overlapping",
		"delivered fetch reading", "delivered fetch scattering", "delivered fetch overlapping"}
}

// SituationOf returns the situation of the fetch of a command.
func (p *Pipeline) SituationOf(t effects.Ticket) Situation { return p.situationAt(p.findFetch(t)) }

// SituationFor returns the situation of the fetch that a completion or a deadline belongs to.
func (p *Pipeline) SituationFor(ref kernel.Ref) Situation { return p.situationAt(ref.Subject) }

func (p *Pipeline) situationAt(h table.Handle) Situation {
	f := p.fetches.Get(h)
	if f == nil {
		return NoFetch
	}
	situation := Waiting
	for i := range f.halves {
		switch f.halves[i].state {
		case reading:
			situation += Reading - Waiting
		case scattering:
			situation += Scattering - Waiting
		case empty, full:
		}
	}
	if f.delivered {
		situation += DeliveredReading - Reading
	}
	return situation
}

package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/world"
)

// Shadows are copies of machines as they were before a step: what they would be without what it gave them.
type Shadows struct {
	machines *explore.Machines
	last     *rank.Rank
	out      effects.Effects
}

// Of is n's machine as it is, until the next one is asked for.
func (s *Shadows) Of(n *world.Node) *rank.Rank {
	if s.machines == nil {
		s.machines = explore.NewMachines()
	}
	s.last = explore.CloneMachine(s.machines, s.last, rankOf(n))
	return s.last
}

// Same says whether n's machine is, after a step at this instant, as its shadow after a Tick.
func (s *Shadows) Same(n *world.Node, shadow *rank.Rank, now effects.Time) bool {
	shadow.Step(now, &effects.Tick{}, &s.out)
	s.out.Reset()
	return explore.SameMachine(s.machines, shadow, rankOf(n), now)
}

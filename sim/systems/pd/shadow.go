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
	out      effects.Effects
}

// Of is n's machine as it is.
func (s *Shadows) Of(n *world.Node) *rank.Rank {
	if s.machines == nil {
		s.machines = explore.NewMachines()
	}
	return explore.CloneMachine(s.machines, rankOf(n))
}

// Same says whether n's machine is, after a step at this instant, as its shadow after a Tick.
func (s *Shadows) Same(n *world.Node, shadow *rank.Rank, now effects.Time) bool {
	shadow.Step(now, &effects.Tick{}, &s.out)
	s.out.Reset()
	return explore.HashMachine(s.machines, shadow, now) == explore.HashMachine(s.machines, rankOf(n), now)
}

package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/world"
)

// Shadows makes copies of machines before a step. A copy shows the state that the machine would have if the step's
// event had not arrived.
type Shadows struct {
	machines *explore.Machines
	last     *rank.Rank
	out      effects.Effects
}

// Of returns a copy of n's machine in the present state. The copy is valid until the next call.
func (s *Shadows) Of(n *world.Node) *rank.Rank {
	if s.machines == nil {
		s.machines = explore.NewMachines()
	}
	s.last = explore.CloneMachine(s.machines, s.last, rankOf(n))
	return s.last
}

// Same reports whether n's machine, after a step at the time now, equals the copy from before the step after a Tick at
// the same time.
func (s *Shadows) Same(n *world.Node, shadow *rank.Rank, now effects.Time) bool {
	shadow.Step(now, &effects.Tick{}, &s.out)
	s.out.Reset()
	return explore.SameMachine(s.machines, shadow, rankOf(n), now)
}

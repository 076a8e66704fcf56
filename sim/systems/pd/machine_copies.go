package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/world"
)

// MachineCopies makes copies of machines before a step. A copy shows the state that the machine would have if the
// step's event had not arrived.
type MachineCopies struct {
	machines *explore.MachineHasher
	last     *rank.Rank
	out      effects.Effects
}

// CopyOf returns a copy of n's machine in the present state. The copy is valid until the next call.
func (s *MachineCopies) CopyOf(n *world.Node) *rank.Rank {
	if s.machines == nil {
		s.machines = explore.NewMachineHasher()
	}
	s.last = explore.CloneMachine(s.machines, s.last, rankOf(n))
	return s.last
}

// EqualsAfterTick reports whether n's machine, after a step at the time now, equals the copy from before the step after
// a Tick at the same time.
func (s *MachineCopies) EqualsAfterTick(n *world.Node, before *rank.Rank, now effects.Time) bool {
	before.Step(now, &effects.Tick{}, &s.out)
	s.out.Reset()
	return explore.SameMachine(s.machines, before, rankOf(n), now)
}

// TickCopy ticks a copy, and returns the kinds of the effects of that tick, except refusals that it reports. isBusy
// reports that the copy has more work at the same time.
func (s *MachineCopies) TickCopy(copied *rank.Rank, now effects.Time) (kinds []effects.Kind, isBusy bool) {
	copied.Step(now, &effects.Tick{}, &s.out)
	kinds = KindsOf(&s.out, 0)
	s.out.Reset()
	at, ok := copied.Deadline()
	return kinds, ok && at <= now
}

// HasWorkAt reports whether n's machine has work left at the time now, because a step has used up its budget.
func (*MachineCopies) HasWorkAt(n *world.Node, now effects.Time) bool {
	at, ok := rankOf(n).Deadline()
	return ok && at <= now
}

// Equals reports whether n's machine equals a copy at the time now.
func (s *MachineCopies) Equals(n *world.Node, copied *rank.Rank, now effects.Time) bool {
	return explore.SameMachine(s.machines, copied, rankOf(n), now)
}

// KindsOf returns the kinds of effects, without replies to a request and without refusals that are reported.
func KindsOf(out *effects.Effects, request effects.Request) (kinds []effects.Kind) {
	for i := range out.Len() {
		switch e := out.At(i).(type) {
		case *effects.Reply:
			if e.Request == request {
				continue
			}
		case *effects.Observe:
			if e.Code != effects.OK {
				continue
			}
		default: // All other kinds count.
		}
		kinds = append(kinds, effects.KindOf(out.At(i)))
	}
	return kinds
}

package explore

import "github.com/kvferry/kvferry/sim/world"

// The acts of a scope run one after the other. Orders between events of two acts are not tried, because the start of a
// later act often matters more than the way in which the world reached that state.

// nextAct returns the next act: the first act of which no job has begun. nextAct returns 0 if there is none.
func (b *state) nextAct(s *Scope) (next int) {
	for i := range s.Jobs {
		if act := s.Jobs[i].Act; act > 0 && (next == 0 || act < next) && !b.hasBegun(s, act) {
			next = act
		}
	}
	return next
}

// hasBegun reports whether a job of an act has begun.
func (b *state) hasBegun(s *Scope, act int) bool {
	waiting := 0
	for i := range s.Jobs {
		if s.Jobs[i].Act == act {
			waiting++
		}
	}
	for _, q := range b.w.Queue.Heap {
		if d := &b.w.Queue.Slab[q.Slot]; actOf(s, d) == act {
			waiting--
		}
	}
	return waiting > 0
}

// actOf returns the act that begins with a delivery, or 0.
func actOf(s *Scope, d *world.Delivery) int {
	if d.Kind != world.KindStartJob || d.A >= uint64(len(s.Jobs)) {
		return 0
	}
	return s.Jobs[d.A].Act
}

// addStarts adds the jobs of an act.
func (b *state) addStarts(s *Scope, act int, into []choice) []choice {
	for _, q := range b.w.Queue.Heap {
		if d := &b.w.Queue.Slab[q.Slot]; actOf(s, d) == act {
			into = append(into, choice{move: moveDeliver, seq: q.Seq, node: b.steppedNode(d), stepsMachine: !b.stepwise})
		}
	}
	return into
}

package sim

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
)

// shrinkPasses lists the ways to reduce a plan, the most effective passes first.
var passes = []func(*shrinker){
	dropJobs, dropItems, dropNodes, dropFaults, dropStrikes, dropKeys, plainJobs, plainItems, awake, plainFaults, usual,
	sooner, itemsSooner, round, rename,
}

func dropJobs(s *shrinker) { thin(s, func(p *plan.Plan) *[]plan.Job { return &p.Jobs }) }

func dropFaults(s *shrinker) { thin(s, func(p *plan.Plan) *[]plan.Scheduled { return &p.Faults }) }

func dropStrikes(s *shrinker) { thin(s, func(p *plan.Plan) *[]plan.Strike { return &p.Strikes }) }

func dropKeys(s *shrinker) {
	for i := range s.best.Jobs {
		thin(s, func(p *plan.Plan) *[]uint32 { return &p.Jobs[i].Keys })
	}
}

// dropNodes removes a node and everything that refers to the node. The remaining nodes get new numbers and therefore
// different draws, so a few seeds are tried for each node.
func dropNodes(s *shrinker) {
	for n := s.best.NodeCount() - 1; n >= 0; n-- {
		for other := range uint64(4) {
			if s.change(func(p *plan.Plan) bool { p.Seed += other; return p.Without(int32(n)) }) {
				break
			}
		}
	}
}

// plainJobs simplifies jobs: batches of all keys, no early readers, senders of kvferry instead of plain LMCache
// senders.
func plainJobs(s *shrinker) {
	for i := range s.best.Jobs {
		s.change(func(p *plan.Plan) bool {
			j := &p.Jobs[i]
			was := j.Batch
			j.Batch = len(j.Keys)
			return j.Batch != was && j.Batch <= int(p.Topology.SenderPages)
		})
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].Early, false) })
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].Whole, false) })
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].Plain, false) })
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].PlainTo, false) })
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].Take, false) })
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].Prefix, 0) })
	}
}

// plainFaults simplifies faults: crashes at their scheduled instant instead of within a step, and shorter spans.
func plainFaults(s *shrinker) {
	for i := range s.best.Faults {
		s.change(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			f.Nth = 0
			return set(&f.When, "")
		})
		s.change(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			return f.Fault == plan.FaultTwice && set(&f.Fault, plan.FaultCrash)
		})
		s.change(func(p *plan.Plan) bool { return set(&p.Faults[i].Nth, 0) })
		s.change(func(p *plan.Plan) bool { return set(&p.Faults[i].Pick, 0) })
		for s.change(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			f.For /= 2
			return f.For > time.Millisecond
		}) {
		}
	}
}

// usual replaces settings by the defaults of NewPlan, which a plan need not mention.
func usual(s *shrinker) {
	common := plan.New()
	s.change(func(p *plan.Plan) bool { return set(&p.Timeouts, common.Timeouts) })
	s.change(func(p *plan.Plan) bool { return set(&p.Bounds, common.Bounds) })
	s.change(func(p *plan.Plan) bool { return set(&p.Tuning, plan.Tuning{}) })
	s.change(func(p *plan.Plan) bool { return set(&p.Delays, common.Delays) })
	s.change(func(p *plan.Plan) bool {
		had := len(p.Topology.DriftPPM) > 0
		p.Topology.DriftPPM = nil
		return had
	})
	s.change(func(p *plan.Plan) bool {
		had := len(p.Topology.Windows) > 0
		p.Topology.Windows = nil
		return had
	})
	s.change(func(p *plan.Plan) bool {
		had := len(p.Topology.Moves) > 0
		p.Topology.Moves = nil
		return had
	})
	s.change(func(p *plan.Plan) bool {
		had := len(p.Topology.Unrenewed) > 0
		p.Topology.Unrenewed = nil
		return had
	})
	for i := len(s.best.Topology.Pull) - 1; i >= 0; i-- {
		s.change(func(p *plan.Plan) bool { p.Topology.Pull = slices.Delete(p.Topology.Pull, i, i+1); return true })
	}
	for i := len(s.best.Topology.Delay) - 1; i >= 0; i-- {
		s.change(func(p *plan.Plan) bool { p.Topology.Delay = slices.Delete(p.Topology.Delay, i, i+1); return true })
	}
	for i := len(s.best.Topology.Cache) - 1; i >= 0; i-- {
		s.change(func(p *plan.Plan) bool { p.Topology.Cache = slices.Delete(p.Topology.Cache, i, i+1); return true })
	}
	s.change(func(p *plan.Plan) bool { return set(&p.Topology.Mismatch, false) })
	s.change(func(p *plan.Plan) bool { return set(&p.Topology.Trust, false) })
	s.change(func(p *plan.Plan) bool { return set(&p.Topology.Reply, "") })
	s.change(func(p *plan.Plan) bool { return set(&p.Topology.SenderPages, common.Topology.SenderPages) })
	s.change(func(p *plan.Plan) bool { return set(&p.Topology.ReceiverPages, common.Topology.ReceiverPages) })
	for i, d := range common.Spans() {
		s.change(func(p *plan.Plan) bool { return set(p.Spans()[i], *d) })
	}
	for i, b := range common.Counts() {
		s.change(func(p *plan.Plan) bool { return set(p.Counts()[i], *b) })
	}
}

// sooner shortens the time before anything happens.
func sooner(s *shrinker) {
	for s.change(func(p *plan.Plan) bool {
		moved := false
		for i := range p.Jobs {
			moved = set(&p.Jobs[i].At, p.Jobs[i].At/2) || moved
		}
		for i := range p.Items {
			moved = set(&p.Items[i].At, p.Items[i].At/2) || moved
		}
		for i := range p.Faults {
			moved = set(&p.Faults[i].At, p.Faults[i].At/2) || moved
		}
		return moved
	}) {
	}
	for i := range s.best.Jobs {
		s.change(func(p *plan.Plan) bool { return set(&p.Jobs[i].At, 0) })
	}
	for i := range s.best.Faults {
		s.change(func(p *plan.Plan) bool { return set(&p.Faults[i].At, 0) })
	}
	s.change(func(p *plan.Plan) bool {
		end := time.Duration(0)
		for i := range p.Faults {
			end = max(end, p.Faults[i].At+p.Faults[i].For)
		}
		end += time.Millisecond
		return end < p.FaultsEnd && set(&p.FaultsEnd, end)
	})
	for s.change(func(p *plan.Plan) bool { p.FaultsEnd /= 2; return p.FaultsEnd > 10*time.Millisecond }) {
	}
}

// round rounds numbers so that a person can read them.
func round(s *shrinker) {
	for _, unit := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond,
		100 * time.Microsecond} {
		s.change(func(p *plan.Plan) bool {
			moved := false
			for _, at := range p.Instants() {
				moved = set(at, at.Round(unit)) || moved
			}
			return moved
		})
		for i := range s.best.Instants() {
			s.change(func(p *plan.Plan) bool {
				all := p.Instants()
				if i >= len(all) { // The change before removed the duration of a fault, so there are fewer instants.
					return false
				}
				return set(all[i], all[i].Round(unit))
			})
		}
	}
	for i := range s.best.Spans() {
		s.change(func(p *plan.Plan) bool {
			d := p.Spans()[i]
			return set(d, d.Round(10*time.Millisecond)) && *d > 0
		})
	}
	s.change(func(p *plan.Plan) bool { return set(&p.Seed, 0) })
}

// rename numbers requests and chunks in the order in which they occur.
func rename(s *shrinker) {
	s.change(func(p *plan.Plan) bool {
		moved, number := false, map[uint32]uint32{}
		for i := range p.Jobs {
			number[p.Jobs[i].Request] = uint32(i)
			moved = set(&p.Jobs[i].Request, uint32(i)) || moved
		}
		for i := range p.Strikes {
			if r, ok := p.Strikes[i].About.Request(); ok {
				p.Strikes[i].About = p.Strikes[i].About.OfRequest(number[r])
			}
		}
		return moved
	})
	s.change(func(p *plan.Plan) bool {
		moved, number, shared, own := false, map[uint32]uint32{}, uint32(1), uint32(plan.KeysOwn)
		for i := range p.Jobs {
			for k, key := range p.Jobs[i].Keys {
				if _, ok := number[key]; !ok && key < plan.KeysOwn {
					number[key], shared = shared, shared+1
				} else if !ok {
					number[key], own = own, own+1
				}
				moved = set(&p.Jobs[i].Keys[k], number[key]) || moved
			}
		}
		return moved
	})
}

// set assigns a value and reports whether the value changed.
func set[T comparable](v *T, to T) bool {
	changed := *v != to
	*v = to
	return changed
}

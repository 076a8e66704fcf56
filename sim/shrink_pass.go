package sim

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
)

// shrinkPasses lists the ways to reduce a plan, the most effective passes first.
var shrinkPasses = []func(*shrinkState){
	dropJobs, dropItems, dropNodes, dropFaults, dropStrikes, dropKeys, simplifyJobs, simplifyItems, removeFreezes, simplifyFaults, useDefaults,
	startEarlier, moveItemsEarlier, roundNumbers, renumberPlan,
}

func dropJobs(s *shrinkState) { removeElements(s, func(p *plan.Plan) *[]plan.Job { return &p.Jobs }) }

func dropFaults(s *shrinkState) {
	removeElements(s, func(p *plan.Plan) *[]plan.ScheduledFault { return &p.Faults })
}

func dropStrikes(s *shrinkState) {
	removeElements(s, func(p *plan.Plan) *[]plan.Strike { return &p.Strikes })
}

func dropKeys(s *shrinkState) {
	for i := range s.best.Jobs {
		removeElements(s, func(p *plan.Plan) *[]uint32 { return &p.Jobs[i].Keys })
	}
}

// dropNodes removes a node and everything that refers to the node. The remaining nodes get new numbers and therefore
// different draws, so a few seeds are tried for each node.
func dropNodes(s *shrinkState) {
	for n := s.best.NodeCount() - 1; n >= 0; n-- {
		for seedOffset := range uint64(4) {
			if s.tryChange(func(p *plan.Plan) bool { p.Seed += seedOffset; return p.RemoveNode(int32(n)) }) {
				break
			}
		}
	}
}

// simplifyJobs simplifies jobs: batches of all keys, no early readers, senders of kvferry instead of plain LMCache
// senders.
func simplifyJobs(s *shrinkState) {
	for i := range s.best.Jobs {
		s.tryChange(func(p *plan.Plan) bool {
			j := &p.Jobs[i]
			before := j.Batch
			j.Batch = len(j.Keys)
			return j.Batch != before && j.Batch <= int(p.Topology.SenderPages)
		})
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].Early, false) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].Whole, false) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].Plain, false) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].PlainTo, false) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].Take, false) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].Prefix, 0) })
	}
}

// simplifyFaults simplifies faults: crashes at their scheduled instant instead of within a step, and shorter spans.
func simplifyFaults(s *shrinkState) {
	for i := range s.best.Faults {
		s.tryChange(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			f.Nth = 0
			return setValue(&f.When, "")
		})
		s.tryChange(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			return f.Fault == plan.FaultDoubleCrash && setValue(&f.Fault, plan.FaultCrash)
		})
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Faults[i].Nth, 0) })
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Faults[i].Pick, 0) })
		for s.tryChange(func(p *plan.Plan) bool {
			f := &p.Faults[i]
			f.For /= 2
			return f.For > time.Millisecond
		}) {
		}
	}
}

// useDefaults replaces settings by the defaults of NewPlan, which a plan need not mention.
func useDefaults(s *shrinkState) {
	defaults := plan.New()
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Timeouts, defaults.Timeouts) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Bounds, defaults.Bounds) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Tuning, plan.Tuning{}) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Delays, defaults.Delays) })
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.DriftPPM) > 0
		p.Topology.DriftPPM = nil
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Windows) > 0
		p.Topology.Windows = nil
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Tenants)+len(p.Topology.KeyTenants) > 0
		p.Topology.Tenants, p.Topology.Limited, p.Topology.KeyTenants = nil, nil, nil
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Bounds.TenantShareLater, 0) })
	s.tryChange(func(p *plan.Plan) bool {
		p.Bounds.TenantShareLater = 0
		return setValue(&p.Bounds.TenantSharePct, 0)
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Limited) > 0
		p.Topology.Limited = nil
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Identities) > 0 && len(p.Topology.Tenants) == 0 && !p.Topology.Domains
		p.Topology.Identities, p.Topology.Strict = nil, false
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.Domains, false) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.Sums, false) })
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Origins) > 0
		p.Topology.Origins, p.Bounds.OriginSharePct = nil, 0
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Moves) > 0
		p.Topology.Moves = nil
		return wasSet
	})
	s.tryChange(func(p *plan.Plan) bool {
		wasSet := len(p.Topology.Unrenewed) > 0
		p.Topology.Unrenewed = nil
		return wasSet
	})
	for i := len(s.best.Topology.Pull) - 1; i >= 0; i-- {
		s.tryChange(func(p *plan.Plan) bool { p.Topology.Pull = slices.Delete(p.Topology.Pull, i, i+1); return true })
	}
	for i := len(s.best.Topology.Delay) - 1; i >= 0; i-- {
		s.tryChange(func(p *plan.Plan) bool { p.Topology.Delay = slices.Delete(p.Topology.Delay, i, i+1); return true })
	}
	for i := len(s.best.Topology.Cache) - 1; i >= 0; i-- {
		s.tryChange(func(p *plan.Plan) bool { p.Topology.Cache = slices.Delete(p.Topology.Cache, i, i+1); return true })
	}
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.Mismatch, false) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.Trust, false) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.Reply, "") })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.SenderPages, defaults.Topology.SenderPages) })
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Topology.ReceiverPages, defaults.Topology.ReceiverPages) })
	for i, d := range defaults.DurationSettings() {
		s.tryChange(func(p *plan.Plan) bool { return setValue(p.DurationSettings()[i], *d) })
	}
	for i, b := range defaults.CountSettings() {
		s.tryChange(func(p *plan.Plan) bool { return setValue(p.CountSettings()[i], *b) })
	}
}

// startEarlier shortens the time before anything happens.
func startEarlier(s *shrinkState) {
	for s.tryChange(func(p *plan.Plan) bool {
		moved := false
		for i := range p.Jobs {
			moved = setValue(&p.Jobs[i].At, p.Jobs[i].At/2) || moved
		}
		for i := range p.Items {
			moved = setValue(&p.Items[i].At, p.Items[i].At/2) || moved
		}
		for i := range p.Faults {
			moved = setValue(&p.Faults[i].At, p.Faults[i].At/2) || moved
		}
		return moved
	}) {
	}
	for i := range s.best.Jobs {
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Jobs[i].At, 0) })
	}
	for i := range s.best.Faults {
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Faults[i].At, 0) })
	}
	s.tryChange(func(p *plan.Plan) bool {
		end := time.Duration(0)
		for i := range p.Faults {
			end = max(end, p.Faults[i].At+p.Faults[i].For)
		}
		end += time.Millisecond
		return end < p.FaultsEnd && setValue(&p.FaultsEnd, end)
	})
	for s.tryChange(func(p *plan.Plan) bool { p.FaultsEnd /= 2; return p.FaultsEnd > 10*time.Millisecond }) {
	}
}

// roundNumbers rounds numbers so that a person can read them.
func roundNumbers(s *shrinkState) {
	for _, unit := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, time.Millisecond,
		100 * time.Microsecond} {
		s.tryChange(func(p *plan.Plan) bool {
			moved := false
			for _, at := range p.Instants() {
				moved = setValue(at, at.Round(unit)) || moved
			}
			return moved
		})
		for i := range s.best.Instants() {
			s.tryChange(func(p *plan.Plan) bool {
				all := p.Instants()
				if i >= len(all) { // The change before removed the duration of a fault, so there are fewer instants.
					return false
				}
				return setValue(all[i], all[i].Round(unit))
			})
		}
	}
	for i := range s.best.DurationSettings() {
		s.tryChange(func(p *plan.Plan) bool {
			d := p.DurationSettings()[i]
			return setValue(d, d.Round(10*time.Millisecond)) && *d > 0
		})
	}
	s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Seed, 0) })
}

// renumberPlan numbers requests and chunks in the order in which they occur.
func renumberPlan(s *shrinkState) {
	s.tryChange(func(p *plan.Plan) bool {
		moved, number := false, map[uint32]uint32{}
		for i := range p.Jobs {
			number[p.Jobs[i].Request] = uint32(i)
			moved = setValue(&p.Jobs[i].Request, uint32(i)) || moved
		}
		for i := range p.Strikes {
			if r, ok := p.Strikes[i].About.Request(); ok {
				p.Strikes[i].About = p.Strikes[i].About.WithRequest(number[r])
			}
		}
		return moved
	})
	s.tryChange(func(p *plan.Plan) bool {
		moved, number, shared, unshared := false, map[uint32]uint32{}, uint32(1), uint32(plan.FirstUnsharedKey)
		for i := range p.Jobs {
			for k, key := range p.Jobs[i].Keys {
				if _, ok := number[key]; !ok && key < plan.FirstUnsharedKey {
					number[key], shared = shared, shared+1
				} else if !ok {
					number[key], unshared = unshared, unshared+1
				}
				moved = setValue(&p.Jobs[i].Keys[k], number[key]) || moved
			}
		}
		return moved
	})
}

// setValue assigns a value and reports whether the value changed.
func setValue[T comparable](v *T, to T) bool {
	changed := *v != to
	*v = to
	return changed
}

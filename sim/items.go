package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/sim/plan"
)

// Check returns an error if a plan is not valid for the system, in addition to what [plan.Plan.Check] verifies. A nil
// system is [PD].
func (s *System) Check(p *plan.Plan) error {
	if s.isPD() {
		if p.System != "" {
			return fmt.Errorf("sim: plan: system is %q, but the run is of system pd; "+
				"set the system in the options, as the test that wrote the plan does", p.System)
		}
		return p.Check()
	}
	if err := s.checkParts(); err != nil {
		return err
	}
	if p.System != s.Name {
		return fmt.Errorf("sim: plan: system is %s, but the run is of system %s: use a plan of that system",
			cmp.Or(p.System, plan.PD), s.Name)
	}
	if err := p.Check(); err != nil {
		return err
	}
	nodes, err := s.newNodeSet(p)
	if err != nil {
		return err
	}
	if err := errors.Join(nodes.checkPlan(p)...); err != nil {
		return fmt.Errorf("sim: plan: %w", err)
	}
	return nil
}

// checkPlan returns an error for each part of the plan that names a node that does not exist or that does not accept
// this part.
func (c *nodeSet) checkPlan(p *plan.Plan) (errs []error) {
	addError := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	last := c.nodeCount() - 1
	for i := range p.Items {
		x := &p.Items[i]
		if int(x.Node) < c.rankCount || int(x.Node) > last {
			addError("items[%d].node is n%d: use a node whose machine takes commands, n%d to n%d", i, x.Node, c.rankCount, last)
			continue
		}
		do := c.customs[int(x.Node)-c.rankCount].system.Commands
		if do[x.Do] == nil {
			addError("items[%d].do is %q: node n%d knows %s", i, x.Do, x.Node, strings.Join(slices.Sorted(maps.Keys(do)), ", "))
		}
	}
	for i := range p.Faults {
		if int(p.Faults[i].Node) > last {
			addError("faults[%d].node is n%d: give n0 to n%d", i, p.Faults[i].Node, last)
		}
	}
	if len(p.Jobs) > 0 && c.rankCount == 0 {
		addError("jobs are %d, but system %s has no ranks: use items", len(p.Jobs), p.System)
	}
	if len(p.Topology.DriftPPM) > c.nodeCount() {
		addError("topology.drift_ppm has %d clocks: give at most one for each of %d nodes", len(p.Topology.DriftPPM), c.nodeCount())
	}
	return errs
}

// The passes of the shrinker that reduce items: first the number of items, then their details.

func dropItems(s *shrinkState) {
	removeElements(s, func(p *plan.Plan) *[]plan.Item { return &p.Items })
}

// simplifyItems sets the numbers of items to 0 and halves their spans.
func simplifyItems(s *shrinkState) {
	for i := range s.best.Items {
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Items[i].Number, 0) })
		for s.tryChange(func(p *plan.Plan) bool {
			x := &p.Items[i]
			x.Span /= 2
			return x.Span > time.Millisecond
		}) {
		}
	}
}

// removeFreezes removes faults that freeze a node. The node's items within the frozen span move to the end of the span,
// which is when the frozen node carried out these items.
func removeFreezes(s *shrinkState) {
	for i := len(s.best.Faults) - 1; i >= 0; i-- {
		s.tryChange(func(p *plan.Plan) bool {
			f, moved := p.Faults[i], false
			for k := range p.Items {
				if x := &p.Items[k]; f.For > 0 && x.Node == f.Node && x.At >= f.At && x.At < f.At+f.For {
					moved = setValue(&x.At, f.At+f.For) || moved
				}
			}
			p.Faults = slices.Delete(p.Faults, i, i+1)
			return moved
		})
	}
}

// moveItemsEarlier moves single items to the start of the run.
func moveItemsEarlier(s *shrinkState) {
	for i := range s.best.Items {
		s.tryChange(func(p *plan.Plan) bool { return setValue(&p.Items[i].At, 0) })
	}
}

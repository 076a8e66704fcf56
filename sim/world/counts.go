package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
)

// The positions in the coverage of what is counted in any world.
var (
	pointFact = coverage.NewSection(effects.FactCount, func(i int) string {
		if f := effects.Fact(i); f >= effects.FactLinkUp {
			return "fact " + f.String()
		}
		return ""
	})
	pointCode   = coverage.NewSection(effects.CodeCount, func(i int) string { return "transfer " + effects.Code(i).String() })
	pointEffect = coverage.NewSection(int(roleCount)*effects.KindCount, func(i int) string {
		f, k := roles(i/effects.KindCount), effects.Kind(i%effects.KindCount)
		if f < RoleSender || k == plan.AnyEffect {
			return ""
		}
		return "effect " + f.String() + " " + k.String()
	})
	pointFault = coverage.NewSection(int(plan.FaultCount), func(i int) string {
		if i == 0 {
			return ""
		}
		return "fault " + plan.Fault(i).String()
	})
)

// CountFault counts a strike of a fault.
func (r *Result) CountFault(f plan.Fault) {
	r.FaultCounts[f]++
	r.Coverage.Hit(pointFault + coverage.Point(f))
}
func (r *Result) countFact(f effects.Fact) { r.Coverage.Hit(pointFact + coverage.Point(f)) }
func (r *Result) countCode(c effects.Code) { r.Coverage.Hit(pointCode + coverage.Point(c)) }
func (r *Result) countEffect(n *Node, k effects.Kind) {
	if n.Custom {
		return
	}
	r.Coverage.Hit(pointEffect + coverage.Point(n.Roles)*coverage.Point(effects.KindCount) + coverage.Point(k))
}

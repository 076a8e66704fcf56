package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
)

// The positions in the coverage of what is counted in any world.
var (
	pointFact = coverage.Section(effects.FactCount, func(i int) string {
		if f := effects.Fact(i); f >= effects.FactLinkUp {
			return "fact " + f.String()
		}
		return ""
	})
	pointCode   = coverage.Section(effects.CodeCount, func(i int) string { return "transfer " + effects.Code(i).String() })
	pointEffect = coverage.Section(int(facetsEnd)*effects.KindCount, func(i int) string {
		f, k := facets(i/effects.KindCount), effects.Kind(i%effects.KindCount)
		if f < FacetSends || k == plan.AnyEffect {
			return ""
		}
		return "effect " + f.String() + " " + k.String()
	})
	pointFault = coverage.Section(int(plan.FaultKinds), func(i int) string {
		if i == 0 {
			return ""
		}
		return "fault " + plan.Fault(i).String()
	})
)

// Fault counts a strike of a fault.
func (r *Result) Fault(f plan.Fault) {
	r.Counted[f]++
	r.Coverage.Hit(pointFault + coverage.Point(f))
}
func (r *Result) fact(f effects.Fact) { r.Coverage.Hit(pointFact + coverage.Point(f)) }
func (r *Result) code(c effects.Code) { r.Coverage.Hit(pointCode + coverage.Point(c)) }
func (r *Result) effect(n *Node, k effects.Kind) {
	if n.User {
		return
	}
	r.Coverage.Hit(pointEffect + coverage.Point(n.Facets)*coverage.Point(effects.KindCount) + coverage.Point(k))
}

package register

import (
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// halves is said of a job in whose world the consumer has two ranks.
var halves = plan.NewWord(plan.Word{Name: "halves", Job: func(p *plan.Plan, _ *plan.Job) string {
	if !p.Topology.Said[word] {
		return "it needs topology.register; leave it out, or set that"
	}
	return ""
}})

// small are worlds of a request or two.
func small() []explore.Scope { return nil }

package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A command that is refused leaves everything as it was: pages, chunks, what is kept for whom, requests, deadlines. So
// its machine is, after that step, what it would be had it only been told the time.

var checkRefused = oracle.NewCheck("S18", "commands that are refused")

// refusedOracle judges what refused commands leave behind.
type refusedOracle struct {
	judge
	perLife[refusedLife]
	shadows *pd.Shadows `snap:"share"`
}

func (*refusedOracle) listen(l *oracle.Listen[refusedOracle]) {
	oracle.On(l, func(o *refusedOracle, _ *oracle.Call, e world.Stepping) { o.commanded(e.Node, e.Event) })
	oracle.On(l, func(o *refusedOracle, _ *oracle.Call, e pd.Outcome) { o.outcome(e.Node, e.Effect) })
	oracle.On(l, func(o *refusedOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// refusedLife is what is known of the command of this step.
type refusedLife struct {
	before  *rank.Rank     `snap:"scratch"` // the machine as it was
	of      effects.Ticket `snap:"scratch"`
	refused bool           `snap:"scratch"`
	drains  bool           // it was told to before
	last    plan.Want      `snap:"skip"` // the kind of the last one that was refused, if any was
	any     bool           `snap:"skip"`
}

func (s *refusedLife) empty() { *s = refusedLife{} }

// looked is how many commands of a thousand are looked at that nothing says of that they may be refused; lookedAgain
// are those of the kind that was refused last: what was full often is.
const looked, lookedAgain = 30, 500

// commanded keeps n's machine as it is, if a command that it is about to get may be refused.
func (or *refusedOracle) commanded(n *world.Node, ev effects.Event) {
	my := or.at(n)
	my.before, my.refused = nil, false
	x, ok := ev.(*effects.Command)
	// What is left of its work goes on, in parts.
	if !ok || or.w.Seed >= draw.RestlessSeed || or.w.Script != nil || n.Busy {
		return
	}
	c := &or.w.Commands[x.Ticket-1]
	often := looked
	if my.any && my.last == c.Want {
		often = lookedAgain
	}
	drawn := draw.Hash(or.w.Seed, draw.Engine, uint64(c.Name), 17).Permille(often)
	if drawn || my.drains || c.Want == plan.WantConflict {
		if or.shadows == nil {
			or.shadows = &pd.Shadows{}
		}
		my.before, my.of = or.shadows.Of(n), x.Ticket
	}
	my.drains = n.Draining
}

// outcome notes that the command of this step was refused as it came.
func (or *refusedOracle) outcome(n *world.Node, e *effects.Deliver) {
	// A drain that expires at once was carried out.
	if e.Code == effects.OK || e.Code == effects.Expired || e.Why == nil || e.Why.Stage != effects.StageCommand {
		return
	}
	my := or.at(n)
	my.last, my.any = or.w.Commands[e.Ticket-1].Want, true
	my.refused = my.refused || my.before != nil && e.Ticket == my.of
}

// afterStep compares n's machine with what it was.
func (or *refusedOracle) afterStep(n *world.Node) {
	my := or.at(n)
	if my.before == nil || !my.refused {
		return
	}
	or.judged(checkRefused)
	c := &or.w.Commands[my.of-1]
	if !or.shadows.Same(n, my.before, or.w.Clock(n)) {
		or.fail(checkRefused, "node %d refuses ticket %d (%s) as %s, and is not as it was before",
			n.It(), oracle.Ticket(my.of), c.Want, c.Code)
	}
}

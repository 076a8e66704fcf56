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

// A command that is refused must change nothing: no pages, chunks, claims, requests or deadlines. After that step the
// machine must be in the same state as after a step that only receives the time.

var checkRefused = oracle.NewCheck("S18", "commands that are refused")

// refusedOracle judges that refused commands change nothing (S18).
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

// refusedLife records the command of the current step.
type refusedLife struct {
	before  *rank.Rank     `snap:"scratch"` // a copy of the machine before the step
	of      effects.Ticket `snap:"scratch"`
	refused bool           `snap:"scratch"`
	drains  bool           // the machine was already draining
	last    plan.Want      `snap:"skip"` // the kind of the command that was refused last
	any     bool           `snap:"skip"`
}

func (s *refusedLife) startReply() { *s = refusedLife{} }

// looked is the number of examined commands per thousand if nothing suggests that a command may be refused. lookedAgain
// is the same number for commands of the kind that was refused last, because a table that was full often is full again.
const looked, lookedAgain = 30, 500

// commanded copies the machine of n before a step, if the command of the step may be refused.
func (or *refusedOracle) commanded(n *world.Node, ev effects.Event) {
	my := or.at(n)
	my.before, my.refused = nil, false
	x, ok := ev.(*effects.Command)
	// A busy machine goes on with the rest of the work, in parts.
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

// outcome records that the command of this step was refused on arrival.
func (or *refusedOracle) outcome(n *world.Node, e *effects.Deliver) {
	// A drain that expires at once was carried out.
	if e.Code == effects.OK || e.Code == effects.Expired || e.Why == nil || e.Why.Stage != effects.StageCommand {
		return
	}
	my := or.at(n)
	my.last, my.any = or.w.Commands[e.Ticket-1].Want, true
	my.refused = my.refused || my.before != nil && e.Ticket == my.of
}

// afterStep compares the machine of n with the copy.
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

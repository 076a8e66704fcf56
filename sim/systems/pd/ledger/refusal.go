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

// refusalOracle judges that refused commands change nothing (S18).
type refusalOracle struct {
	oracleBase
	perIncarnation[refusalState]
	copies *pd.MachineCopies `snap:"share"`
}

func (*refusalOracle) subscribe(l *oracle.Subscriptions[refusalOracle]) {
	oracle.On(l, func(o *refusalOracle, _ *oracle.Call, e world.SteppingMachine) { o.copyMachine(e.Node, e.Event) })
	oracle.On(l, func(o *refusalOracle, _ *oracle.Call, e pd.CommandOutcome) { o.recordRefusal(e.Node, e.Effect) })
	oracle.On(l, func(o *refusalOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// refusalState records the command of the current step.
type refusalState struct {
	copied   *rank.Rank       `snap:"scratch"` // a copy of the machine before the step
	ticket   effects.Ticket   `snap:"scratch"`
	refused  bool             `snap:"scratch"`
	draining bool             // the machine was already draining
	lastWant plan.CommandKind `snap:"skip"` // the kind of the command that was refused last
	hasLast  bool             `snap:"skip"`
}

func (s *refusalState) clearForReuse() { *s = refusalState{} }

// samplePermille is the number of examined commands per thousand if nothing suggests that a command may be refused.
// repeatPermille is the same number for commands of the kind that was refused last, because a table that was full often
// is full again.
const samplePermille, repeatPermille = 30, 500

// copyMachine copies the machine of n before a step, if the command of the step may be refused.
func (or *refusalOracle) copyMachine(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	state.copied, state.refused = nil, false
	x, ok := ev.(*effects.Command)
	// A busy machine goes on with the rest of the work, in parts.
	if !ok || draw.IsFixed(or.w.Seed) || or.w.Script != nil || n.Busy {
		return
	}
	c := &or.w.Commands[x.Ticket-1]
	permille := samplePermille
	if state.hasLast && state.lastWant == c.Kind {
		permille = repeatPermille
	}
	drawn := draw.Hash(or.w.Seed, draw.Engine, uint64(c.Name), 17).ChancePermille(permille)
	if drawn || state.draining || c.Kind == plan.CommandConflict {
		if or.copies == nil {
			or.copies = &pd.MachineCopies{}
		}
		state.copied, state.ticket = or.copies.CopyOf(n), x.Ticket
	}
	state.draining = n.Draining
}

// recordRefusal records that the command of this step was refused on arrival.
func (or *refusalOracle) recordRefusal(n *world.Node, e *effects.Deliver) {
	// A drain that expires at once was carried out.
	if e.Code == effects.OK || e.Code == effects.Expired || e.Why == nil || e.Why.Stage != effects.StageCommand {
		return
	}
	state := or.stateOf(n)
	state.lastWant, state.hasLast = or.w.Commands[e.Ticket-1].Kind, true
	state.refused = state.refused || state.copied != nil && e.Ticket == state.ticket
}

// afterStep compares the machine of n with the copy.
func (or *refusalOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	if state.copied == nil || !state.refused {
		return
	}
	or.countJudged(checkRefused)
	c := &or.w.Commands[state.ticket-1]
	if !or.copies.EqualsAfterTick(n, state.copied, or.w.ReadClock(n)) {
		or.fail(checkRefused, "node %d refuses ticket %d (%s) as %s, and its state has changed",
			n.AsSubject(), oracle.Ticket(state.ticket), c.Kind, c.Code)
	}
}

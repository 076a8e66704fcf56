package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Drivers size their queues by the maximum number of outstanding effects that a machine declares (effects.Limits). With
// more effects than that, a driver would block. The oracle counts each effect until the effect completes.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLimits   = oracle.NewCheck("S17", "outstanding effects within the declared limits")
	checkBatch    = oracle.NewCheck("S17", "pages per effect within the declared limits")
	checkCommands = oracle.NewCheck("S17", "outstanding commands within the declared limits")
)

// limitOracle judges the effects that are outstanding (S17).
type limitOracle struct {
	oracleBase
	perIncarnation[limitState]
}

func (*limitOracle) subscribe(l *oracle.Subscriptions[limitOracle]) {
	oracle.On(l, func(o *limitOracle, _ *oracle.Call, e world.NodeStarted) {
		o.stateOf(e.Node).declared = pd.LimitsOf(e.Node)
	})
	oracle.On(l, func(o *limitOracle, _ *oracle.Call, e world.SteppingMachine) { o.countCompleted(e.Node, e.Event) })
	oracle.On(l, func(o *limitOracle, _ *oracle.Call, e world.EffectEmitted) { o.countEffect(e.Node, e.Effect) })
	oracle.On(l, func(o *limitOracle, c *oracle.Call, _ oracle.StepEnded) { o.afterStep(o.nodeOf(c)) })
}

// limitState counts the outstanding effects of an incarnation of a node by kind, and holds the declared limits.
type limitState struct {
	declared     effects.Limits   `snap:"skip"`
	outstanding  effects.Limits   `snap:"skip"`
	copies       []effects.Corr   `snap:"skip"` // copies that have not settled
	heldCommands []effects.Ticket `snap:"skip"` // delivered, with their memory still to be returned
}

func (s *limitState) clearForReuse() {
	*s = limitState{copies: s.copies[:0], heldCommands: s.heldCommands[:0]}
}

// countCompleted counts down what an event completes.
func (or *limitOracle) countCompleted(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	switch e := ev.(type) {
	case *effects.Opened, *effects.Replied, *effects.Unanswered, *effects.SendDone, *effects.Imported, *effects.Dropped:
		state.outstanding.Sends--
	case *effects.Revoked:
		state.outstanding.Revokes--
	case *effects.Scattered:
		state.outstanding.Scatters--
	case *effects.Verified:
		state.outstanding.Verifies--
	case *effects.TransferDone:
		if e.Settled {
			state.outstanding.Transfers--
		}
	case *effects.CopyDone:
		if e.Settled {
			state.endSettled(e.Corr)
		}
	case *effects.Settled:
		state.endSettled(e.Corr)
	case *effects.Landed:
		or.verifyBatch(n, state, len(e.Pages))
	case *effects.Command:
		state.outstanding.Commands++
	default: // Further events complete no effect.
	}
}

// endSettled ends a copy or, if corr is no copy, a transfer.
func (s *limitState) endSettled(corr effects.Corr) {
	if i := slices.Index(s.copies, corr); i >= 0 {
		s.copies = slices.Delete(s.copies, i, i+1)
		return
	}
	s.outstanding.Transfers--
}

// countEffect counts an effect, and checks that no more effects of this kind are outstanding than the limits allow.
func (or *limitOracle) countEffect(n *world.Node, e effects.Effect) {
	state := or.stateOf(n)
	switch e := e.(type) {
	case *effects.Open, *effects.Send, *effects.Post, *effects.Import, *effects.Drop:
		state.outstanding.Sends++
		or.verifyLimit(n, "requests, messages and links", state.outstanding.Sends, state.declared.Sends)
	case *effects.Revoke:
		state.outstanding.Revokes++
		or.verifyLimit(n, "revocations", state.outstanding.Revokes, state.declared.Revokes)
	case *effects.Transfer:
		state.outstanding.Transfers++
		or.verifyBatch(n, state, max(len(e.Pairs), len(e.Gather.Pages)))
		or.verifyLimit(n, "transfers", state.outstanding.Transfers, state.declared.Transfers)
	case *effects.Copy:
		state.copies = append(state.copies, e.Corr)
		or.verifyBatch(n, state, len(e.Pairs))
		or.verifyLimit(n, "copies", len(state.copies), state.declared.Copies)
	case *effects.Scatter:
		state.outstanding.Scatters++
		or.verifyBatch(n, state, len(e.Pages))
		or.verifyLimit(n, "scatters", state.outstanding.Scatters, state.declared.Scatters)
	case *effects.Verify:
		state.outstanding.Verifies++
		or.verifyBatch(n, state, len(e.Pages))
		or.verifyLimit(n, "comparisons", state.outstanding.Verifies, state.declared.Verifies)
	case *effects.Grant:
		or.verifyBatch(n, state, len(e.Pages))
	case *effects.Publish:
		or.verifyBatch(n, state, len(e.Pages))
	case *effects.Deliver:
		or.verifyBatch(n, state, len(e.Pages))
		if e.Held {
			state.heldCommands = append(state.heldCommands, e.Ticket)
			return
		}
		state.outstanding.Commands--
	case *effects.Return:
		if i := slices.Index(state.heldCommands, e.Ticket); i >= 0 {
			state.heldCommands = slices.Delete(state.heldCommands, i, i+1)
			state.outstanding.Commands--
		}
	default: // The limits do not count further effects.
	}
}

// verifyLimit checks a count of outstanding effects against the declared limit.
func (or *limitOracle) verifyLimit(n *world.Node, kind string, now, limit int) {
	if or.countJudged(checkLimits); now > limit {
		or.fail(checkLimits, "node %d has %d %s outstanding, and declared a limit of %d", n.AsSubject(), now, kind, limit)
	}
}

// verifyBatch checks the number of pages in an effect or event against the declared limit.
func (or *limitOracle) verifyBatch(n *world.Node, state *limitState, pages int) {
	if or.countJudged(checkBatch); pages > state.declared.PagesPerBatch {
		or.fail(checkBatch, "node %d names %d pages in an effect or event, and declared a limit of %d",
			n.AsSubject(), pages, state.declared.PagesPerBatch)
	}
}

// afterStep checks the number of commands that a machine has accepted. A machine that refuses a command does so in the
// step that brings the command.
func (or *limitOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	if or.countJudged(checkCommands); state.outstanding.Commands > state.declared.Commands {
		or.fail(checkCommands, "node %d has %d commands outstanding, and declared a limit of %d",
			n.AsSubject(), state.outstanding.Commands, state.declared.Commands)
	}
}

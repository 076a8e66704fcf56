package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine that aborts a command is notified whether there was something to end. If so, the machine delivers the
// command's outcome before the machine runs out of work for the instant, unless a device or a plane still works for the
// node, because device work cannot be stopped at once.

var checkAborted = oracle.NewCheck("L1", "commands that are aborted")

// abortOracle judges what becomes of commands that engines abort (L1).
type abortOracle struct {
	oracleBase
	perIncarnation[abortState]
}

func (*abortOracle) subscribe(l *oracle.Subscriptions[abortOracle]) {
	oracle.On(l, func(o *abortOracle, _ *oracle.Call, e pd.CommandOutcome) {
		if e.Command.Kind == plan.CommandAbort && e.Effect.Code == effects.OK {
			o.recordAgreed(e.Node, e.Command.Target)
		}
	})
	oracle.On(l, func(o *abortOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// abortState records the aborted commands of an incarnation of a node.
type abortState struct {
	targets []effects.Ticket `snap:"skip"` // commands that the machine agreed to end and has not ended
}

func (s *abortState) clearForReuse() { *s = abortState{targets: s.targets[:0]} }

// recordAgreed records that a machine has agreed to end a command.
func (or *abortOracle) recordAgreed(n *world.Node, t effects.Ticket) {
	or.stateOf(n).targets = append(or.stateOf(n).targets, t)
}

// afterStep checks that the machine has ended the commands that it agreed to end.
func (or *abortOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	if n.Busy || len(state.targets) == 0 {
		return
	}
	for _, t := range state.targets {
		switch c := &or.w.Commands[t-1]; {
		case c.Finished:
			or.countJudged(checkAborted)
		case or.mayStillWork(n, c):
			or.countVoid(checkAborted)
		default:
			or.countJudged(checkAborted)
			or.fail(checkAborted, "node %d accepts the abort of ticket %d (%s), which has nothing in flight, and does not end the command",
				n.AsSubject(), oracle.Ticket(t), c.Kind)
		}
	}
	state.targets = state.targets[:0]
}

// mayStillWork reports whether a device or a plane may still work for the node n or for the command c.
func (or *abortOracle) mayStillWork(n *world.Node, c *pd.Command) bool {
	return c.Device.Corr != 0 ||
		slices.ContainsFunc(or.w.Active.Transfers.Items, func(t *world.Transfer) bool { return t.Local.Node == n && !t.Ended })
}

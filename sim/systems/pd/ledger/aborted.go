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

// abortedOracle judges what becomes of commands that engines abort (L1).
type abortedOracle struct {
	judge
	perLife[abortedLife]
}

func (*abortedOracle) listen(l *oracle.Listen[abortedOracle]) {
	oracle.On(l, func(o *abortedOracle, _ *oracle.Call, e pd.Outcome) {
		if e.Command.Want == plan.WantAbort && e.Effect.Code == effects.OK {
			o.agreed(e.Node, e.Command.Target)
		}
	})
	oracle.On(l, func(o *abortedOracle, _ *oracle.Call, e counted) { o.afterStep(e.node) })
}

// abortedLife records the aborted commands of an incarnation of a node.
type abortedLife struct {
	targets []effects.Ticket `snap:"skip"` // commands that the machine agreed to end and has not ended
}

func (s *abortedLife) startReply() { *s = abortedLife{targets: s.targets[:0]} }

// agreed records that a machine has agreed to end a command.
func (or *abortedOracle) agreed(n *world.Node, t effects.Ticket) {
	or.at(n).targets = append(or.at(n).targets, t)
}

// afterStep checks that the machine has ended the commands that it agreed to end.
func (or *abortedOracle) afterStep(n *world.Node) {
	my := or.at(n)
	if n.Busy || len(my.targets) == 0 {
		return
	}
	for _, t := range my.targets {
		switch c := &or.w.Commands[t-1]; {
		case c.Over:
			or.judged(checkAborted)
		case or.works(n, c):
			or.void(checkAborted)
		default:
			or.judged(checkAborted)
			or.fail(checkAborted, "node %d agrees to abort ticket %d (%s), of which nothing is under way, and does not end it",
				n.It(), oracle.Ticket(t), c.Want)
		}
	}
	my.targets = my.targets[:0]
}

// works reports whether a device or a plane may still work for the node n or for the command c.
func (or *abortedOracle) works(n *world.Node, c *pd.Command) bool {
	return c.Device.Corr != 0 ||
		slices.ContainsFunc(or.w.Going.Transfers.Some, func(t *world.Transfer) bool { return t.Local.Node == n && !t.Ended })
}

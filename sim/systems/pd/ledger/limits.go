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
	checkLimits   = oracle.NewCheck("S17", "effects outstanding, within the limits that drivers were told")
	checkBatch    = oracle.NewCheck("S17", "pages of one effect, within those limits")
	checkCommands = oracle.NewCheck("S17", "commands outstanding, within those limits")
)

// limitsOracle judges the effects that are outstanding (S17).
type limitsOracle struct {
	judge
	perLife[limitsLife]
}

func (*limitsOracle) listen(l *oracle.Listen[limitsOracle]) {
	oracle.On(l, func(o *limitsOracle, _ *oracle.Call, e world.Started) { o.at(e.Node).most = pd.LimitsOf(e.Node) })
	oracle.On(l, func(o *limitsOracle, _ *oracle.Call, e world.Stepping) { o.happened(e.Node, e.Event) })
	oracle.On(l, func(o *limitsOracle, _ *oracle.Call, e world.Wanted) { o.wants(e.Node, e.Effect) })
	oracle.On(l, func(o *limitsOracle, c *oracle.Call, _ oracle.Stepped) { o.afterStep(o.node(c)) })
}

// limitsLife counts the outstanding effects of an incarnation of a node by kind, and holds the declared limits.
type limitsLife struct {
	most   effects.Limits   `snap:"skip"`
	now    effects.Limits   `snap:"skip"`
	copies []effects.Corr   `snap:"skip"` // copies that have not settled
	held   []effects.Ticket `snap:"skip"` // delivered, with their memory still to be returned
}

func (s *limitsLife) startReply() { *s = limitsLife{copies: s.copies[:0], held: s.held[:0]} }

// happened counts down what an event completes.
func (or *limitsOracle) happened(n *world.Node, ev effects.Event) {
	my := or.at(n)
	switch e := ev.(type) {
	case *effects.Opened, *effects.Replied, *effects.Unanswered, *effects.SendDone, *effects.Imported, *effects.Dropped:
		my.now.Sends--
	case *effects.Revoked:
		my.now.Revokes--
	case *effects.Scattered:
		my.now.Scatters--
	case *effects.TransferDone:
		if e.Settled {
			my.now.Transfers--
		}
	case *effects.CopyDone:
		if e.Settled {
			my.settled(e.Corr)
		}
	case *effects.Settled:
		my.settled(e.Corr)
	case *effects.Landed:
		or.batch(n, my, len(e.Pages))
	case *effects.Command:
		my.now.Commands++
	default: // Further events complete no effect.
	}
}

// settled ends a copy or, if corr is no copy, a transfer.
func (my *limitsLife) settled(corr effects.Corr) {
	if i := slices.Index(my.copies, corr); i >= 0 {
		my.copies = slices.Delete(my.copies, i, i+1)
		return
	}
	my.now.Transfers--
}

// wants counts an effect, and checks that no more effects of this kind are outstanding than the limits allow.
func (or *limitsOracle) wants(n *world.Node, e effects.Effect) {
	my := or.at(n)
	switch e := e.(type) {
	case *effects.Open, *effects.Send, *effects.Post, *effects.Import, *effects.Drop:
		my.now.Sends++
		or.within(n, "questions, words and links", my.now.Sends, my.most.Sends)
	case *effects.Revoke:
		my.now.Revokes++
		or.within(n, "revocations", my.now.Revokes, my.most.Revokes)
	case *effects.Transfer:
		my.now.Transfers++
		or.batch(n, my, len(e.Pairs))
		or.within(n, "transfers", my.now.Transfers, my.most.Transfers)
	case *effects.Copy:
		my.copies = append(my.copies, e.Corr)
		or.batch(n, my, len(e.Pairs))
		or.within(n, "copies", len(my.copies), my.most.Copies)
	case *effects.Scatter:
		my.now.Scatters++
		or.batch(n, my, len(e.Pages))
		or.within(n, "scatters", my.now.Scatters, my.most.Scatters)
	case *effects.Grant:
		or.batch(n, my, len(e.Pages))
	case *effects.Publish:
		or.batch(n, my, len(e.Pages))
	case *effects.Deliver:
		or.batch(n, my, len(e.Pages))
		if e.Held {
			my.held = append(my.held, e.Ticket)
			return
		}
		my.now.Commands--
	case *effects.Return:
		if i := slices.Index(my.held, e.Ticket); i >= 0 {
			my.held = slices.Delete(my.held, i, i+1)
			my.now.Commands--
		}
	default: // The limits do not count further effects.
	}
}

// within checks a count of outstanding effects against the declared limit.
func (or *limitsOracle) within(n *world.Node, what string, now, most int) {
	if or.judged(checkLimits); now > most {
		or.fail(checkLimits, "node %d has %d %s outstanding, and told its driver of %d at the most", n.It(), now, what, most)
	}
}

// batch checks the number of pages in an effect or event against the declared limit.
func (or *limitsOracle) batch(n *world.Node, my *limitsLife, pages int) {
	if or.judged(checkBatch); pages > my.most.PagesPerBatch {
		or.fail(checkBatch, "node %d speaks of %d pages at once, and told its driver of %d at the most",
			n.It(), pages, my.most.PagesPerBatch)
	}
}

// afterStep checks the number of commands that a machine has accepted. A machine that refuses a command does so in the
// step that brings the command.
func (or *limitsOracle) afterStep(n *world.Node) {
	my := or.at(n)
	if or.judged(checkCommands); my.now.Commands > my.most.Commands {
		or.fail(checkCommands, "node %d has %d commands outstanding, and told its driver of %d at the most",
			n.It(), my.now.Commands, my.most.Commands)
	}
}

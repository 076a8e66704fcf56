package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Every failure comes with an explanation (L9): besides the code, the explanation names the stage in which the failure
// happened, the peer, and the field that was wrong or the peer's message.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkExplained     = oracle.NewCheck("L9", "outcomes that say why")
	checkExplainedPut  = oracle.NewCheck("L9", "puts that say why")
	checkExplainedFact = oracle.NewCheck("L9", "facts that say why")
	checkUnderstood    = oracle.NewCheck("L8", "messages that nobody changed")
)

// whyOracle judges the explanations of failures.
type whyOracle struct{ judge }

func (*whyOracle) listen(l *oracle.Listen[whyOracle]) {
	oracle.On(l, func(o *whyOracle, _ *oracle.Call, e pd.Outcome) { o.explained(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *whyOracle, _ *oracle.Call, e world.Observed) { o.explainedFact(e.Node, e.Effect) })
}

// stagesOf contains, for some codes, the stages in which a put can end with the code. In addition a driver may report
// the code during a transfer.
//
//kvferry:table
var stagesOf = map[effects.Code][]effects.Stage{
	effects.Unreachable: {effects.StageConnect, effects.StagePlane, effects.StageOffer},
	effects.Mismatch: {
		effects.StageCommand, effects.StageHello, effects.StageBuffers, effects.StageAsk, effects.StageOffer,
	},
	effects.NoMemory: {effects.StageMemory, effects.StageAsk, effects.StageOffer},
	effects.Unsupported: {
		effects.StageCommand, effects.StageHello, effects.StagePlane, effects.StageBuffers, effects.StageAsk,
		effects.StageOffer,
	},
	effects.BackedOff: {effects.StageAsk},
	effects.Ended:     {effects.StageCommand},
	effects.Invalid:   {effects.StageCommand, effects.StageConnect, effects.StageAsk, effects.StageOffer},
	effects.Withdrawn: {effects.StageAsk, effects.StageCommit, effects.StageOffer},
}

// bare contains the codes for which the stage is explanation enough.
//
//kvferry:table
var bare = []effects.Code{
	effects.Cancelled, effects.PeerLost, effects.Faulted, effects.Withdrawn, effects.Closed, effects.Draining,
	effects.Stale, effects.Refused,
	effects.Expired,
}

// explained judges the explanation of an outcome.
func (or *whyOracle) explained(n *world.Node, e *effects.Deliver, c *pd.Command) {
	w := e.Why
	or.judged(checkExplained)
	missed := (c.Want == plan.WantGet || c.Want == plan.WantLook) &&
		(e.Code == effects.NotFound || e.Code == effects.Lapsed)
	switch {
	case e.Code == effects.OK || missed: // The prefix explains the outcome.
		if w != nil {
			or.fail(checkExplained, "node %d ends ticket %d (%s) as %s and says why it failed",
				n.It(), oracle.Ticket(e.Ticket), c.Want, e.Code)
		}
	case w == nil || w.Stage == effects.StageNone:
		or.fail(checkExplained, "node %d ends ticket %d (%s) as %s and does not say why",
			n.It(), oracle.Ticket(e.Ticket), c.Want, e.Code)
	case w.Field == "" && w.Said == "" && !slices.Contains(bare, e.Code):
		or.fail(checkExplained, "node %d ends ticket %d (%s) as %s and names no field",
			n.It(), oracle.Ticket(e.Ticket), c.Want, e.Code)
	case effects.SanitizeText([]byte(w.Said)) != w.Said:
		or.fail(checkExplained, "node %d shows a peer's words as they came: %q", n.It(), w.Said)
	case c.Want == plan.WantPut:
		or.explainedPut(n, e, c.Body.(*ops.Put))
	case c.Want == plan.WantFetch && (e.Code == effects.Unreachable || e.Code == effects.PeerLost) && w.Name == "":
		or.fail(checkExplained, "node %d ends ticket %d (fetch) as %s and not says of whose chunks",
			n.It(), oracle.Ticket(e.Ticket), e.Code)
	}
}

// explainedPut judges which peer and which stage the explanation of a put's failure names.
func (or *whyOracle) explainedPut(n *world.Node, e *effects.Deliver, body *ops.Put) {
	w := e.Why
	or.judged(checkExplainedPut)
	driver := w.Stage == effects.StageTransfer
	if may, ok := stagesOf[e.Code]; ok && !driver && !slices.Contains(may, w.Stage) {
		or.fail(checkExplainedPut, "node %d ends ticket %d (put) as %s at stage %q, out of place",
			n.It(), oracle.Ticket(e.Ticket), e.Code, w.Stage)
		return
	}
	to := effects.Addr{Host: body.Peer.Host, Port: body.Peer.InitPort}
	if w.Stage == effects.StageCommand {
		to = effects.Addr{} // No peer had part in it.
	}
	if w.Addr != to {
		or.fail(checkExplainedPut, "node %d ends ticket %d (put to %s) as %s and names %s",
			n.It(), oracle.Ticket(e.Ticket), to, e.Code, w.Addr)
		return
	}
	if life := or.w.LifeOf(w.Peer); life != nil && life.Addr(effects.ChannelInit).Host != to.Host {
		or.fail(checkExplainedPut, "node %d ends ticket %d (put to %s) and names an incarnation of node %d",
			n.It(), oracle.Ticket(e.Ticket), to, life.It())
	}
}

// explainedFact judges a fact that reports a failure for which there need not be an outcome.
func (or *whyOracle) explainedFact(n *world.Node, e *effects.Observe) {
	if or.understood(n, e); or.w.Failure != nil {
		return
	}
	f := e.Fact
	if f != effects.FactHelloRefused && f != effects.FactMalformed && f != effects.FactLinkDown &&
		f != effects.FactAllocRefused {
		return // The fact reports no failure, or an outcome reports the failure.
	}
	or.judged(checkExplainedFact)
	explained := f == effects.FactAllocRefused && e.Code == effects.Malformed // by the fact before it
	if (e.Why == nil || e.Why.Stage == effects.StageNone) && !explained {
		or.fail(checkExplainedFact, "node %d notes %s %s and does not say why", n.It(), f, e.Code)
	}
}

// understood checks that no machine refuses an unchanged message of another machine as malformed.
func (or *whyOracle) understood(n *world.Node, e *effects.Observe) {
	malformed := e.Code == effects.Malformed && (e.Fact == effects.FactMalformed || e.Fact == effects.FactAllocRefused)
	if !malformed {
		or.judged(checkUnderstood)
		return
	}
	outsiders := slices.ContainsFunc(or.w.Jobs, func(j pd.Job) bool { return j.PlainTo })
	if outsiders || slices.ContainsFunc(changingFaults, func(f plan.Fault) bool { return or.w.Result.Counted[f] > 0 }) {
		or.void(checkUnderstood)
		return
	}
	if or.w.Script == nil && len(or.w.Source.Topology.Foreign) == 0 {
		or.fail(checkUnderstood, "node %d takes for malformed what another machine has said: %v", n.It(), e.Code)
	}
}

// changingFaults are the faults after which a message may differ from what a machine has sent.
var changingFaults = []plan.Fault{plan.FaultNoise, plan.FaultHostile, plan.FaultCorruptRequest, plan.FaultCorruptReply,
	plan.FaultForged, plan.FaultForeign, plan.FaultRepeated, plan.FaultGreedy, plan.FaultCrowd}

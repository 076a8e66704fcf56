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
	checkReason     = oracle.NewCheck("L9", "outcomes with an explanation")
	checkPutReason  = oracle.NewCheck("L9", "failed puts with an explanation")
	checkFactReason = oracle.NewCheck("L9", "facts with an explanation")
	checkWellFormed = oracle.NewCheck("L8", "unchanged messages that are refused as malformed")
)

// reasonOracle judges the explanations of failures.
type reasonOracle struct{ oracleBase }

func (*reasonOracle) subscribe(l *oracle.Subscriptions[reasonOracle]) {
	oracle.On(l, func(o *reasonOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.verifyReason(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *reasonOracle, _ *oracle.Call, e world.FactObserved) { o.verifyFactReason(e.Node, e.Effect) })
}

// allowedStages contains, for some codes, the stages in which a put can end with the code. In addition a driver may
// report the code during a transfer.
//
//kvferry:table
var allowedStages = map[effects.Code][]effects.Stage{
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

// stageOnlyCodes contains the codes for which the stage is explanation enough.
//
//kvferry:table
var stageOnlyCodes = []effects.Code{
	effects.Cancelled, effects.PeerLost, effects.Faulted, effects.Withdrawn, effects.Closed, effects.Draining,
	effects.Stale, effects.Refused,
	effects.Expired,
}

// verifyReason judges the explanation of an outcome.
func (or *reasonOracle) verifyReason(n *world.Node, e *effects.Deliver, c *pd.Command) {
	w := e.Why
	or.countJudged(checkReason)
	missed := (c.Kind == plan.CommandGet || c.Kind == plan.CommandLookup || c.Kind == pd.WantOfDomain) &&
		(e.Code == effects.NotFound || e.Code == effects.Lapsed)
	switch {
	case e.Code == effects.OK || missed: // The prefix explains the outcome.
		if w != nil {
			or.fail(checkReason, "node %d ends ticket %d (%s) as %s with an explanation of a failure",
				n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code)
		}
	case w == nil || w.Stage == effects.StageNone:
		or.fail(checkReason, "node %d ends ticket %d (%s) as %s without an explanation",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code)
	case w.Field == "" && w.Said == "" && !slices.Contains(stageOnlyCodes, e.Code):
		or.fail(checkReason, "node %d ends ticket %d (%s) as %s without naming a field",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code)
	case effects.SanitizeText([]byte(w.Said)) != w.Said:
		or.fail(checkReason, "node %d shows a peer's text without sanitizing it: %q", n.AsSubject(), w.Said)
	case c.Kind == plan.CommandPut:
		or.verifyPutReason(n, e, c.Body.(*ops.Put))
	case c.Kind == plan.CommandFetch && (e.Code == effects.Unreachable || e.Code == effects.PeerLost) && w.Name == "":
		or.fail(checkReason, "node %d ends ticket %d (fetch) as %s without naming the sender of the chunks",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code)
	}
}

// verifyPutReason judges which peer and which stage the explanation of a put's failure names.
func (or *reasonOracle) verifyPutReason(n *world.Node, e *effects.Deliver, body *ops.Put) {
	w := e.Why
	or.countJudged(checkPutReason)
	driver := w.Stage == effects.StageTransfer
	if stages, ok := allowedStages[e.Code]; ok && !driver && !slices.Contains(stages, w.Stage) {
		or.fail(checkPutReason, "node %d ends ticket %d (put) as %s at stage %q, where that code cannot occur",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, w.Stage)
		return
	}
	to := effects.Addr{Host: body.Peer.Host, Port: body.Peer.InitPort}
	if w.Stage == effects.StageCommand {
		to = effects.Addr{} // No peer had part in it.
	}
	if w.Addr != to {
		or.fail(checkPutReason, "node %d ends ticket %d (put to %s) as %s and names %s",
			n.AsSubject(), oracle.Ticket(e.Ticket), to, e.Code, w.Addr)
		return
	}
	if node := or.w.NodeOfIncarnation(w.Peer); node != nil && node.Addr(effects.ChannelInit).Host != to.Host {
		or.fail(checkPutReason, "node %d ends ticket %d (put to %s) and names an incarnation of node %d",
			n.AsSubject(), oracle.Ticket(e.Ticket), to, node.AsSubject())
	}
}

// verifyFactReason judges a fact that reports a failure for which there need not be an outcome.
func (or *reasonOracle) verifyFactReason(n *world.Node, e *effects.Observe) {
	if or.verifyWellFormed(n, e); or.w.Failure != nil {
		return
	}
	f := e.Fact
	if f != effects.FactHelloRefused && f != effects.FactMalformed && f != effects.FactLinkDown &&
		f != effects.FactAllocRefused {
		return // The fact reports no failure, or an outcome reports the failure.
	}
	or.countJudged(checkFactReason)
	explained := f == effects.FactAllocRefused && e.Code == effects.Malformed // by the fact before it
	if (e.Why == nil || e.Why.Stage == effects.StageNone) && !explained {
		or.fail(checkFactReason, "node %d reports fact %s with code %s without an explanation", n.AsSubject(), f, e.Code)
	}
}

// verifyWellFormed checks that no machine refuses an unchanged message of another machine as malformed.
func (or *reasonOracle) verifyWellFormed(n *world.Node, e *effects.Observe) {
	malformed := e.Code == effects.Malformed && (e.Fact == effects.FactMalformed || e.Fact == effects.FactAllocRefused)
	if !malformed {
		or.countJudged(checkWellFormed)
		return
	}
	outsiders := slices.ContainsFunc(or.w.Jobs, func(j pd.Job) bool { return j.PlainTo })
	if outsiders || slices.ContainsFunc(changingFaults, func(f plan.Fault) bool { return or.w.Result.FaultCounts[f] > 0 }) {
		or.countVoid(checkWellFormed)
		return
	}
	if or.w.Script == nil && len(or.w.SourcePlan.Topology.Foreign) == 0 {
		or.fail(checkWellFormed, "node %d refuses an unchanged message of another machine as malformed: %v", n.AsSubject(), e.Code)
	}
}

// changingFaults are the faults after which a message may differ from what a machine has sent.
var changingFaults = []plan.Fault{plan.FaultNoise, plan.FaultHostileMessage, plan.FaultRequestCorrupted, plan.FaultReplyCorrupted,
	plan.FaultDoneForged, plan.FaultForeignEncoding, plan.FaultFieldRepeated, plan.FaultGreedyPeer, plan.FaultHelloCrowd}

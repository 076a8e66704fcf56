package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An offer waits for two things: for the link to the sender's pages, and for free pages. When its time is over, the
// refusal says for which of them it waited. That matters to the sender: a refusal for lack of memory opens the breaker
// for the receiver, and an unreachable link does not.

var checkWaitReason = oracle.NewCheck("L9", "reasons of the refusal of offers that have waited")

// recordWait notes for what a waiting offer may wait: for pages if it is not the first of its class or its sender's
// plane is connected, otherwise for the link. It is called when the offer arrives and after each step.
func (or *queueOracle) recordWait(n *world.Node, i int) {
	o := &or.stateOf(n).pending[i]
	linked := o.canBeServed(n)
	o.mayLackPages = o.mayLackPages || n.Busy || linked || !or.isHead(n, i)
	o.mayLackLink = o.mayLackLink || n.Busy || !linked
}

// recordWaits notes, after a step, for what the waiting offers may wait.
func (or *queueOracle) recordWaits(n *world.Node) {
	pending := or.stateOf(n).pending
	for i := range pending {
		if o := &pending[i]; o.offerGrant != 0 && !o.reading && (!o.mayLackPages || !o.mayLackLink) {
			or.recordWait(n, i)
		}
	}
}

// verifyWaitReason checks the code by which an offer that has waited is refused.
func (or *queueOracle) verifyWaitReason(n *world.Node, w *pendingRequest, body []byte) {
	if w.offerGrant == 0 || w.keyCount == 0 || w.reading || w.isNew {
		return
	}
	m, ok := or.facts().asAck(body)
	if !ok || !m.HasExt {
		return
	}
	code := effects.CodeFromWire(m.Ext.Code)
	if code != effects.NoMemory && code != effects.Unreachable {
		return
	}
	if n.KeepsOffers || or.w.Script != nil || w.mayLackPages && w.mayLackLink ||
		or.w.ReadClock(n).Sub(w.arrivedAt) < pd.InfoOf(n).Cfg.AllocTimeout/4 {
		or.countVoid(checkWaitReason)
		return
	}
	or.countJudged(checkWaitReason)
	switch {
	case code == effects.NoMemory && !w.mayLackPages:
		or.fail(checkWaitReason, "node %d refuses request %d for lack of pages, and the request waited only for the link to its pages",
			n.AsSubject(), oracle.Message(w.request))
	case code == effects.Unreachable && !w.mayLackLink:
		or.fail(checkWaitReason, "node %d refuses request %d because its pages are out of reach, and was linked to them all the time",
			n.AsSubject(), oracle.Message(w.request))
	}
}

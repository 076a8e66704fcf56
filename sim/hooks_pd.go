package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What oracles are told by PD's engines: of their commands and of the outcomes of those.

// onGiven: an engine gives a command, which its machine gets later.
func (o *oracles) onGiven(n *world.Node, c *command, t effects.Ticket) {
	switch {
	case c.want == plan.WantReserve:
		o.lent.given(n, t)
	case c.want == plan.WantPut && n.Device != nil:
		o.offload.given(n, t)
	case c.want == plan.WantPut && n.Pulls:
		o.pressure.given(n, t)
	}
}

// onCommand: a machine is about to get a command.
func (o *oracles) onCommand(n *world.Node, c *command, t effects.Ticket) {
	switch c.want {
	case plan.WantGet, plan.WantLook:
		o.hope.given(n, t)
	case plan.WantFetch:
		o.fetch.fetchGiven(n, t)
		o.claimed.fetching(n, c.job)
	case plan.WantContains:
		o.kept.containing(n, c)
	case plan.WantAbandon:
		o.kept.abandoned(n, c.job)
		o.prompt.abandoned(n, c.job)
		o.claimed.abandoned(n, c.job)
	case plan.WantAbort:
		o.fetch.aborted(c.target)
	// Nothing waits for those.
	case plan.WantReserve, plan.WantPut, plan.WantRelease, plan.WantUnpin, plan.WantDrain, plan.WantConflict,
		plan.WantRecall:
	}
}

// onOutcome: any command has its outcome. More is told of some below.
func (o *oracles) onOutcome(n *world.Node, e *effects.Deliver, c *command) { o.why.explained(n, e, c) }

func (o *oracles) onReserved(n *world.Node, e *effects.Deliver, c *command) { o.lent.reserved(n, e, c) }
func (o *oracles) onContained(n *world.Node, e *effects.Deliver, c *command) {
	o.kept.contained(n, e, c)
}
func (o *oracles) onFetched(n *world.Node, e *effects.Deliver, c *command) {
	o.fetch.fetchEnded(n, e, c)
	o.prompt.fetchEnded(n)
}

func (o *oracles) onPutEnded(n *world.Node, e *effects.Deliver, c *command) {
	o.breaker.putEnded(n, c, e)
	o.absent.unreachable(n, c, e.Code)
	o.prompt.putEnded(n, e)
}

func (o *oracles) onRecalled(n *world.Node, e *effects.Deliver, c *command) { o.recall.ended(n, e, c) }

func (o *oracles) onPutOK(n *world.Node, e *effects.Deliver, c *command) { o.promises.putOK(n, e, c) }

func (o *oracles) onGot(n *world.Node, e *effects.Deliver, c *command) {
	o.claimed.got(n, c, len(e.Pages))
	if c.want == plan.WantGet {
		o.claims.kept(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.lapsed.toldMissing(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.hope.gaveUp(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.cache.got(n, e, c)
	}
	o.reads.got(n, e, c)
}

// onRead: an engine reads pages that it got for a job.
func (o *oracles) onRead(n *world.Node, j *job, pages []effects.Page) { o.reads.verify(n, j, pages) }

// onReturned: the memory of a put is its engine's again.
func (o *oracles) onReturned(n *world.Node, c *command) { o.lent.lentBack(n, c) }

// onCopied: the same, of a put that goes on with the copy of its chunks, which can be offered from now on.
func (o *oracles) onCopied(n *world.Node, t effects.Ticket) { o.pressure.given(n, t) }

// onRelease: an engine gives back what it had by a ticket.
func (o *oracles) onRelease(n *world.Node, t effects.Ticket) { o.lent.releasing(n, t) }

// onNotice: a word to the proxy, and whether the transport took it.
func (o *oracles) onNotice(n *world.Node, m *protocol.ProxyNotif, taken bool) {
	o.promises.told(n, m, taken)
}

// onEndTold: the word that an offer has ended, likewise.
func (o *oracles) onEndTold(n *world.Node, m *protocol.PullDoneSignal, taken bool) {
	o.offers.saying(n, m)
	o.kept.endSaid(n, m, taken)
}

package ledger

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What oracles are told by PD's engines: of their commands and of the outcomes of those.

// OnGiven: an engine gives a command, which its machine gets later.
func (o *OfEngines) OnGiven(n *world.Node, c *pd.Command, t effects.Ticket) {
	switch {
	case c.Want == plan.WantReserve:
		o.lent.given(n, t)
	case c.Want == plan.WantPut && n.Pulls:
		o.pressure.given(n, t)
	}
}

// OnCommand: a machine is about to get a command.
func (o *OfEngines) OnCommand(n *world.Node, c *pd.Command, t effects.Ticket) {
	if c.Want == pd.WantGiveUp {
		o.kept.letsGo(n, c)
	}
	switch c.Want {
	case plan.WantGet, plan.WantLook:
		o.hope.given(n, t)
	case plan.WantFetch:
		o.fetch.fetchGiven(n, t)
		o.claimed.fetching(n, c.Job)
	case plan.WantContains:
		o.kept.containing(n, c)
	case plan.WantAbandon:
		o.kept.abandoned(n, c.Job)
		o.prompt.abandoned(n, c.Job)
		o.claimed.abandoned(n, c.Job)
	case plan.WantAbort:
		o.fetch.aborted(c.Target)
	// Nothing waits for those.
	case plan.WantReserve:
		o.both.given(n, t)
	case plan.WantPut, plan.WantRelease, plan.WantUnpin, plan.WantDrain, plan.WantConflict:
	}
}

// OnOutcome: any command has its outcome. More is told of some below.
func (o *OfEngines) OnOutcome(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.why.explained(n, e, c)
	o.both.ended(n, e, c)
	o.refused.outcome(n, e)
	o.ends.delivered(n, e, c)
	if c.Want == plan.WantAbandon && e.Code == effects.OK {
		o.prompt.abandonEnded(n, c.Job)
	} else if c.Want == plan.WantAbandon {
		o.prompt.abandonRefused(n, c.Job)
	}
	if c.Want == plan.WantAbort && e.Code == effects.OK {
		o.aborted.agreed(n, c.Target)
	}
	if c.Want == pd.WantGiveUp && e.Code == effects.OK {
		o.kept.left(n, c)
		o.claimed.gaveUp(n, c)
	}
	if c.Want == plan.WantDrain && e.Code == effects.Expired {
		o.quiet.gaveUp(n)
	}
}

func (o *OfEngines) OnReserved(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.lent.reserved(n, e, c)
	o.both.reserved(n, e)
}
func (o *OfEngines) OnContained(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.kept.contained(n, e, c)
}
func (o *OfEngines) OnFetched(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.fetch.fetchEnded(n, e, c)
	o.prompt.fetchEnded(n)
}

func (o *OfEngines) OnPutEnded(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.breaker.putEnded(n, c, e)
	o.absent.unreachable(n, c, e.Code)
	o.prompt.putEnded(n, e)
}

func (o *OfEngines) OnPutOK(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.promises.putOK(n, e, c)
}

func (o *OfEngines) OnGot(n *world.Node, e *effects.Deliver, c *pd.Command) {
	o.claimed.got(n, c, len(e.Pages))
	if c.Want == plan.WantGet {
		o.claims.kept(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.lapsed.toldMissing(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.claimed.missed(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.hope.gaveUp(n, e, c)
	}
	if o.truth.w.Failure == nil {
		o.cache.got(n, e, c)
	}
	o.reads.got(n, e, c)
}

// OnRead: an engine reads pages that it got for a job.
func (o *OfEngines) OnRead(n *world.Node, j *pd.Job, pages []effects.Page) {
	o.reads.verify(n, j, pages)
}

// OnReturned: the memory of a put is its engine's again.
func (o *OfEngines) OnReturned(n *world.Node, c *pd.Command) { o.lent.lentBack(n, c) }

// OnKept: an engine is told how many chunks of what it wants to fetch are here or kept.
func (o *OfEngines) OnKept(n *world.Node, e *effects.Deliver, c *pd.Command) { o.kept.told(n, e, c) }

// OnStored: a cache has taken over what its engine filled.
func (o *OfEngines) OnStored(n *world.Node, c *pd.Command) {
	o.lent.stored(n, c)
	for _, key := range c.Body.(*ops.Store).Keys {
		hash := pd.KeyHashOf(n, key)
		o.pages.ready(n, hash)
		o.cache.ready(n, hash)
	}
}

// OnRelease: an engine gives back what it had by a ticket.
func (o *OfEngines) OnRelease(n *world.Node, t effects.Ticket) { o.lent.releasing(n, t) }

// OnNotice: a word to the proxy, and whether the transport took it.
func (o *OfEngines) OnNotice(n *world.Node, m *protocol.ProxyNotif, taken bool) {
	o.promises.told(n, m, taken)
	o.proxy.told(n, m, taken)
}

// OnEndTold: the word that an offer has ended, likewise.
func (o *OfEngines) OnEndTold(n *world.Node, m *protocol.PullDoneSignal, taken bool) {
	o.offers.saying(n, m)
	o.kept.endSaid(n, m, taken)
	o.words.endTold(n, m)
}

func (o *OfEngines) OnPlainStore(x *pd.PlainWrite, half int) { o.bearer.plainStoring(x, half) }
func (o *OfEngines) OnPlainStill(x *pd.PlainWrite)           { o.bearer.plainStill(x) }

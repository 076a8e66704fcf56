package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// What oracles are told by PD's engines: of their commands and of the outcomes of those.

// onGiven: an engine gives a command, which its machine gets later.
func (o *oracles) onGiven(n *node, c *command, t effects.Ticket) {
	switch {
	case c.want == wantReserve:
		o.lent.given(n, t)
	case c.want == wantPut && n.device != nil:
		o.offload.given(n, t)
	case c.want == wantPut && n.pulls:
		o.pressure.given(n, t)
	}
}

// onCommand: a machine is about to get a command.
func (o *oracles) onCommand(n *node, c *command, t effects.Ticket) {
	switch c.want {
	case wantGet, wantLook:
		o.hope.given(n, t)
	case wantFetch:
		o.fetch.fetchGiven(n, t)
	case wantContains:
		o.kept.containing(n, c)
	case wantAbandon:
		o.kept.abandoned(n, c.job)
	case wantAbort:
		o.fetch.aborted(c.target)
	case wantReserve, wantPut, wantRelease, wantUnpin, wantDrain, wantConflict: // Nothing waits for those.
	}
}

// onOutcome: any command has its outcome. More is told of some below.
func (o *oracles) onOutcome(n *node, e *effects.Deliver, c *command) { o.why.explained(n, e, c) }

func (o *oracles) onReserved(n *node, e *effects.Deliver, c *command)  { o.lent.reserved(n, e, c) }
func (o *oracles) onContained(n *node, e *effects.Deliver, c *command) { o.kept.contained(n, e, c) }
func (o *oracles) onFetched(n *node, e *effects.Deliver, c *command)   { o.fetch.fetchEnded(n, e, c) }

func (o *oracles) onPutEnded(n *node, e *effects.Deliver, c *command) {
	o.breaker.putEnded(n, c, e)
	o.absent.unreachable(n, c, e.Code)
}

func (o *oracles) onPutOK(n *node, e *effects.Deliver, c *command) { o.promises.putOK(n, e, c) }

func (o *oracles) onGot(n *node, e *effects.Deliver, c *command) {
	if c.want == wantGet {
		o.claims.kept(n, e, c)
	}
	if o.truth.w.failure == nil {
		o.lapsed.toldMissing(n, e, c)
	}
	if o.truth.w.failure == nil {
		o.hope.gaveUp(n, e, c)
	}
	if o.truth.w.failure == nil {
		o.cache.got(n, e, c)
	}
	o.reads.got(n, e, c)
}

// onRead: an engine reads pages that it got for a job.
func (o *oracles) onRead(n *node, j *job, pages []effects.Page) { o.reads.verify(n, j, pages) }

// onReturned: the memory of a put is its engine's again.
func (o *oracles) onReturned(n *node, c *command) { o.lent.lentBack(n, c) }

// onCopied: the same, of a put that goes on with the copy of its chunks, which can be offered from now on.
func (o *oracles) onCopied(n *node, t effects.Ticket) { o.pressure.given(n, t) }

// onRelease: an engine gives back what it had by a ticket.
func (o *oracles) onRelease(n *node, t effects.Ticket) { o.lent.releasing(n, t) }

// onNotice: a word to the proxy, and whether the transport took it.
func (o *oracles) onNotice(n *node, m *protocol.ProxyNotif, taken bool) { o.promises.told(n, m, taken) }

// onEndTold: the word that an offer has ended, likewise.
func (o *oracles) onEndTold(n *node, m *protocol.PullDoneSignal, taken bool) {
	o.offers.saying(n, m)
	o.kept.endSaid(n, m, taken)
}

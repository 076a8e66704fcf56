package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// What oracles are told of a world, and in which order: the first who finds a promise broken tells the story. Whatever
// happens reaches them through here, or through hooks_pd.go where it is PD's engines that say it, so that who changes
// the world sees what is judged of it.

// beforeStep: n's machine is about to be given an event.
func (o *oracles) beforeStep(n *node) {
	if n.own == nil {
		o.fetch.fetchesDue(n)
	}
}

// afterStep: n's machine has made a step, which was carried out. What it counts is compared with what drivers saw.
func (o *oracles) afterStep(n *node) {
	if n.own != nil {
		o.truth.w.boundedOwn(n)
		return
	}
	s := n.stats()
	held := n.engine().held
	// The worlds of an explorer never get old.
	if n.steps%recountEvery == 1 || o.truth.w.seed >= draw.RestlessSeed {
		o.counts.recounted(n)
		o.share.givenBack(n, false)
		o.rest.counted(n)
	}
	if !o.counts.remembers(n, &s) {
		return
	}
	o.promises.together(n)
	o.claims.crowding(n, &s)
	o.queue.queues(n, &s)
	o.hope.afterStep(n)
	o.prompt.afterStep(n, &s)
	if n.caches {
		o.cache.afterStep(n, &s)
	}
	if n.delays {
		o.hope.waitsForKept(n)
		o.fetch.fetches(n, &s)
	}
	if n.lends && !n.pulls {
		o.offers.takenBack(n)
	}
	if n.pulls {
		o.offers.takenBack(n)
		o.pressure.pressed(n, &s)
	}
	o.counts.free(n, &s, held)
	if n.device != nil {
		o.offload.hostPages(n, s.HostTotal, s.HostFree)
	}
}

// onDeath: a life of n ends, whatever it was about to do.
func (o *oracles) onDeath(n *node) {
	o.truth.w.tellDown(n)
	if n.own != nil {
		o.truth.w.diedOwn(n)
		return
	}
	o.counts.recounted(n)
	o.truth.died(n)
}

// onQuiet: nothing is under way in n any more, for that reason.
func (o *oracles) onQuiet(n *node, when string) {
	if n.own != nil {
		o.truth.w.quietOwn(n, when)
		return
	}
	if o.quiet.quiet(n, when); o.truth.w.failure == nil {
		o.rest.rests(n, when)
	}
}

// What a machine is about to be given.

func (o *oracles) onReceived(n *node, d delivery) {
	if n.own != nil {
		return
	}
	if effects.Channel(d.b) == effects.ChannelDone {
		o.offers.doneHeard(n, d.body)
		return
	}
	if effects.Channel(d.b) == effects.ChannelQuery {
		o.recall.heard(n, d.body)
		return
	}
	o.queue.asked(n, d.c, effects.Channel(d.b), d.a, d.body)
	o.kept.offerAt(n, d.c, d.body)
}

// onReplied: an answer, and the offer that it answers, if it does.
func (o *oracles) onReplied(n *node, c *conn, offer effects.GrantID, body []byte) {
	if n.own != nil {
		return
	}
	o.breaker.heard(n, c, body)
	o.offers.acked(n, offer, body)
	o.renew.renewed(n, body)
}

func (o *oracles) onUnreachable(n *node, c *conn) {
	if n.own == nil {
		o.absent.nobody(n, c)
	}
}

func (o *oracles) afterUnreachable(n *node, c *conn) {
	if n.own == nil {
		o.absent.stranded(n, c)
	}
}

func (o *oracles) onConnLost(n *node, conn uint64) {
	if n.own == nil {
		o.queue.askerLost(n, conn)
	}
}

func (o *oracles) onImported(n *node, corr effects.Corr, code effects.Code) {
	o.fetch.importEnded(n, corr, code)
}

func (o *oracles) onLinkLost(n *node, peer effects.Incarnation) {
	o.kept.outOfReach(n, peer, effects.PeerLost)
	o.landed.gone(n, peer)
	o.prompt.peerLost(n, peer)
}

func (o *oracles) onTransferDone(n *node, t *transfer, code effects.Code, settled bool) {
	o.fills.heardOf(t, code)
	o.fetch.readFailed(n, t, code)
	if t.read {
		o.queue.readEnded(n, t)
	}
	if settled {
		o.onSettled(t)
	}
}

func (o *oracles) onLandedTold(n *node, t *transfer, complete bool) {
	o.prompt.landedPartly(n, t, complete)
}

func (o *oracles) onSettled(t *transfer)                 { o.lent.settled(t) }
func (o *oracles) onCopySettled(c *offload)              { o.offload.copySettled(c) }
func (o *oracles) onRevoked(n *node, id effects.GrantID) { o.pages.revoked(n, id) }

func (o *oracles) onScattered(n *node, t effects.Ticket, code effects.Code) {
	o.scatter.scattered(n, t, code)
	o.fetch.scattered(t, code)
}

// What a machine wants, as it is carried out.

func (o *oracles) onOpen(n *node, c *conn) {
	if n.own == nil {
		o.absent.connecting(n, c)
	}
}

func (o *oracles) onSend(n *node, c *conn, body []byte) {
	if n.own != nil {
		return
	}
	o.breaker.asking(n, c, body)
	o.absent.spoke(n, c)
	o.offers.offering(n, c, body)
	o.recall.saying(n, c, body)
}

func (o *oracles) onReply(n *node, request uint64, body []byte) {
	if n.own == nil {
		o.queue.answered(n, request, body)
		o.recall.answering(n, &o.truth.w.requests[request-1], body)
	}
}

func (o *oracles) onImport(n *node, e *effects.Import) { o.fetch.importing(n, e) }

func (o *oracles) onPublish(n *node, pages []effects.Page) {
	o.loans.publishing(n, pages)
	o.cache.used(n, pages)
}

func (o *oracles) onGrant(n *node, e *effects.Grant) {
	o.share.sharing(n, e)
	o.pages.granting(n, e)
	o.cache.used(n, e.Pages)
}

func (o *oracles) onLend(n *node, g *grant) { o.loans.lending(n, g) }

func (o *oracles) onTransfer(n *node, t *transfer, e *effects.Transfer) { o.lent.transferring(n, t, e) }

func (o *oracles) onCancel(n *node, t *transfer)              { o.queue.stopped(n, t) }
func (o *oracles) onCopy(n *node, c *offload)                 { o.offload.copying(n, c) }
func (o *oracles) onScatter(n *node, e *effects.Scatter) bool { return o.scatter.scattering(n, e) }

func (o *oracles) onFact(n *node, e *effects.Observe) {
	if n.own != nil {
		return
	}
	o.why.explainedFact(n, e)
	switch e.Fact {
	case effects.FactReady:
		o.pages.ready(n, e.ID)
		o.cache.ready(n, e.ID)
	case effects.FactEvicted:
		o.cache.evicted(n, e.ID)
	case effects.FactLapsed:
		o.lapsed.toldLapsed(n, e)
	case effects.FactFillLost:
		o.hope.lost(n, e.ID)
	case effects.FactAllocRefused:
		o.hope.refusal(n, e.Code)
	case effects.FactPutEnded, effects.FactLinkUp, effects.FactLinkDown, effects.FactGranted, effects.FactReclaimed,
		effects.FactProxyTold, effects.FactMalformed, effects.FactHelloRefused,
		effects.FactGivenBack: // Nothing is promised of these.
	}
}

// What planes do to pages, at its instant.

func (o *oracles) onSubmit(n *node, t *transfer)         { o.lease.submitting(n, t) }
func (o *oracles) onFlying(t *transfer, pair int)        { o.pages.flying(t, pair) }
func (o *oracles) onFlown(t *transfer, pair int)         { o.pages.flown(t, pair) }
func (o *oracles) onStore(t *transfer, pair, half int)   { o.pages.storing(t, pair, half) }
func (o *oracles) onPassed(t *transfer, pair int)        { o.pages.passing(t, pair) }
func (o *oracles) onLanded(t *transfer)                  { o.pages.landed(t) }
func (o *oracles) onLoad(t *transfer, pair int)          { o.fills.reading(t, pair) }
func (o *oracles) onReadPassed(t *transfer, pair int)    { o.fills.passed(t, pair) }
func (o *oracles) onUnmap(n *node, id effects.GrantID)   { o.pages.unmapped(n, id) }
func (o *oracles) onMove(c *offload, p effects.CopyPair) { o.offload.moving(c, p) }
func (o *oracles) onPlainStore(x *plainWrite, half int)  { o.bearer.plainStoring(x, half) }
func (o *oracles) onPlainStill(x *plainWrite)            { o.bearer.plainStill(x) }

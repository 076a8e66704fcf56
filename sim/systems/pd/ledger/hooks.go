package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What oracles are told of a world, and in which order: the first who finds a promise broken tells the story. Whatever
// happens reaches them through the files hooks, so that who changes the world sees what is judged of it. Steps and
// lives of machines are told to [Oracles] themselves; networks, planes and engines each have a name of their own for
// them.

// BeforeStep: n's machine is about to be given an event.
func (o *Oracles) BeforeStep(n *world.Node, k world.Kind, ev effects.Event) {
	if !n.User {
		o.truth.w.Count(n, k, ev)
		o.limits.happened(n, ev)
		if l, ok := ev.(*effects.Landed); ok {
			o.claimed.at(n).landing = l
			o.shared.landing(n, l)
		}
		o.fetch.fetchesDue(n)
		o.refused.commanded(n, ev)
		o.severed.step(n, ev)
		o.shared.step(n, ev)
		o.again.unanswered(n, ev)
		if x, ok := ev.(*effects.Opened); ok {
			o.proxy.opened(n, x)
			o.words.opened(n, x)
		}
	}
}

func (o *Oracles) Watched(*world.Node, effects.Event) {}
func (o *Oracles) AtRest(*world.Node)                 {}

// Wanted: n's machine wants this, which is not carried out yet.
func (o *Oracles) Wanted(n *world.Node, e effects.Effect) {
	if n.User {
		return
	}
	o.limits.wants(n, e)
	if x, ok := e.(*effects.Confirm); ok {
		o.claimed.told(n, x.Code)
	}
	if x, ok := e.(*effects.Drop); ok {
		o.kept.dropping(n, x)
	}
	if x, ok := e.(*effects.Close); ok {
		o.shared.closing(n, x)
	}
	if _, ok := e.(*effects.Deliver); ok {
		o.shared.at(n).gave = true
	}
}

func (o *Oracles) OnRestart(n *world.Node) { o.truth.w.RestartMeets(n) }
func (o *Oracles) OnAnsweredClosed()       { pd.Met(&o.truth.w.Result, pd.AnsweredAfterClose) }

// AfterStep: n's machine has made a step, which was carried out. What it counts is compared with what drivers saw.
//
// What is promised at once is promised for when a machine has no more work of that instant: it may cut what is much
// into steps, with its deadline at once (n.Busy). That this ends is a promise too (busyMax of package world).
func (o *Oracles) AfterStep(n *world.Node) {
	if n.User {
		return
	}
	o.limits.afterStep(n)
	s := &o.truth.stats
	*s = pd.StatsOf(n)
	held := n.Pool.Held
	// The worlds of an explorer never get old.
	if n.Steps%recountEvery == 1 || o.truth.w.Seed >= draw.RestlessSeed {
		o.counts.recounted(n)
		o.share.givenBack(n, false)
		o.rest.counted(n)
	}
	if !o.counts.remembers(n, s) {
		return
	}
	o.refused.afterStep(n)
	o.aborted.afterStep(n)
	o.absent.afterStep(n)
	o.breaker.afterStep(n)
	o.proxy.afterStep(n)
	o.promises.together(n)
	o.shared.afterStep(n)
	o.blocks.afterStep(n)
	o.claimed.afterStep(n, s.Claims)
	o.claims.crowding(n, s)
	o.queue.queues(n, s)
	o.hope.afterStep(n)
	o.ends.afterStep(n)
	o.prompt.afterStep(n, s)
	if n.Caches {
		o.cache.afterStep(n, s)
	}
	if n.Delays {
		o.hope.waitsForKept(n)
		o.renew.due(n)
		o.fetch.fetches(n, s)
	}
	if n.Lends && !n.Pulls {
		o.offers.takenBack(n)
	}
	if n.Pulls {
		o.offers.takenBack(n)
		o.pressure.turns(n)
		o.pressure.pressed(n, s)
	}
	o.counts.free(n, s, held)
	if n.Arena > 0 {
		o.arena.afterStep(n, s)
	}
}

// OnDeath: a life of n ends, whatever it was about to do.
func (o *Oracles) OnDeath(n *world.Node) {
	if n.User {
		return
	}
	o.counts.recounted(n)
	o.truth.died(n)
}

// OnQuiet: nothing is under way in n any more, for that reason.
func (o *Oracles) OnQuiet(n *world.Node, when string) {
	if n.User {
		return
	}
	if o.quiet.quiet(n, when); o.truth.w.Failure == nil {
		o.rest.rests(n, when)
	}
	if o.truth.w.Failure == nil && o.truth.w.Healed {
		o.words.rests(n, when)
	}
}

// What a machine is about to be given.

func (o *OfNetwork) OnReceived(n *world.Node, d world.Delivery) {
	if n.User {
		return
	}
	o.truth.turn++
	if effects.Channel(d.B) == effects.ChannelDone {
		o.offers.doneHeard(n, d.Body)
		return
	}
	if effects.Channel(d.B) == effects.ChannelQuery {
		o.recall.heard(n, d.Body)
		return
	}
	if c := effects.Channel(d.B); c == effects.ChannelLookup || c == effects.ChannelPeerDone {
		o.shared.heard(n, d.C, d.Body)
		return
	}
	if effects.Channel(d.B) == effects.ChannelRegister {
		o.blocks.heard(n, d.C, d.Body)
		return // It has its answer when nothing of it writes any more: its system judges that.
	}
	o.prompt.heard(n, d)
	if effects.Channel(d.B) == effects.ChannelInit {
		o.kept.handsShaken(n)
	}
	o.renew.asked(n, d.C, d.Body)
	o.queue.asked(n, d.C, effects.Channel(d.B), d.A, d.Body)
	o.kept.offerAt(n, d.C, d.Body)
	if effects.Channel(d.B) == effects.ChannelAlloc {
		o.ends.heard(n, d.C, d.Body)
	}
}

// OnReplied: an answer to what was asked on a connection.
func (o *OfNetwork) OnReplied(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if n.User {
		return
	}
	o.truth.turn++
	o.again.answered(n, corr)
	o.words.waited(n, c, c.Under(corr).Asked)
	offer := c.Under(corr).Offer // that it answers, if it does
	o.breaker.heard(n, c, corr, body)
	o.offers.acked(n, offer, body)
	o.renew.renewed(n, c, c.Under(corr).Asked, body)
	o.words.heard(n, c, body)
	o.shared.replied(n, c)
	o.shared.pushHeard(n, c, corr, body)
	o.blocks.replied(n, c, corr, body)
	o.kept.lent(n, c, corr, body)
}

func (o *OfNetwork) OnUnreachable(n *world.Node, c *world.Conn) {
	if !n.User {
		o.absent.nobody(n, c)
	}
}

func (o *OfNetwork) AfterUnreachable(n *world.Node, c *world.Conn) {
	if !n.User {
		o.absent.stranded(n, c)
	}
}

func (o *OfNetwork) OnConnLost(n *world.Node, conn uint64) {
	if !n.User {
		o.queue.askerLost(n, conn)
	}
}

// What a machine wants, as it is carried out.

func (o *OfNetwork) OnOpen(n *world.Node, c *world.Conn) {
	if !n.User {
		o.absent.connecting(n, c)
		o.renew.tries(n, c)
		o.proxy.connecting(n, c)
	}
}

func (o *OfNetwork) OnSend(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	if n.User {
		return
	}
	o.truth.turn++
	o.breaker.asking(n, c, corr, body)
	o.absent.spoke(n, c)
	o.offers.offering(n, c, body)
	o.recall.saying(n, c, body)
	o.shared.saying(n, c, body)
	o.shared.asking(n, c, corr, body)
	if c.Channel == effects.ChannelRegister {
		o.blocks.asking(n, c, corr, body)
	}
	o.kept.asking(n, c, corr, body)
	o.renew.asking(n, c, body)
	o.again.sent(n, c, corr, body)
	o.attempts.sent(n, c, body)
	o.words.saying(n, c, body)
	o.ends.saying(n, c, body)
}

func (o *OfNetwork) OnReply(n *world.Node, request uint64, body []byte) {
	if !n.User {
		o.truth.turn++
		o.queue.answered(n, request, body)
		o.recall.answering(n, &o.truth.w.Requests[request-1], body)
		o.shared.pushAnswered(n, request, body)
		o.blocks.answering(n, request, body)
		o.shared.answering(n, request, body)
		o.ends.replied(n, request)
	}
}

func (o *Oracles) OnFact(n *world.Node, e *effects.Observe) {
	if n.User {
		return
	}
	o.why.explainedFact(n, e)
	//exhaustive:ignore
	switch e.Fact { // Nothing is promised of others, or flows judge that themselves.
	case effects.FactReady:
		o.pages.ready(n, e.ID)
		o.cache.ready(n, e.ID)
		if k, ok := o.truth.named(n, e.ID); ok {
			if _, layers := o.truth.w.Plan.Layer(k); layers > 0 {
				o.claimed.chunkWhole(n, k)
			}
		}
	case effects.FactEvicted:
		o.cache.evicted(n, e.ID)
	case effects.FactReclaimed:
		o.cache.reclaimed(n, e.Count)
	case effects.FactLapsed:
		o.claimed.lapsed(n, e)
		if o.truth.w.Failure == nil {
			o.lapsed.toldLapsed(n, e)
		}
	case effects.FactLinkUp:
		o.words.linked(n, e.ID)
	case effects.FactLinkDown:
		o.severed.down(n, e.Code)
		o.words.down(n)
		o.shared.down(n)
	case effects.FactFillLost:
		o.hope.lost(n, e.ID)
	case effects.FactAllocRefused:
		o.hope.refusal(n, e.Code)
	}
}

// What planes do to pages, at its instant.

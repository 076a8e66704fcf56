package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
)

// What planes carry out, and their completions.

func (o *OfPlanes) OnImported(n *world.Node, corr effects.Corr, code effects.Code) {
	o.fetch.importEnded(n, corr, code)
}

// OnLinkLost: of a link of n's or, if theirs, of the one over which that peer reached n.
func (o *OfPlanes) OnLinkLost(n *world.Node, peer effects.Incarnation, theirs bool) {
	o.kept.outOfReach(n, peer, effects.PeerLost)
	o.landed.gone(n, peer)
	o.prompt.peerLost(n, peer, theirs)
	o.places.lost(n, peer)
	o.ends.lost(n, peer)
}

func (o *OfPlanes) OnTransferDone(n *world.Node, t *world.Transfer, code effects.Code, settled bool) {
	o.fills.heardOf(t, code)
	o.fetch.readFailed(n, t, code)
	if t.Read {
		o.queue.readEnded(n, t)
	}
	if settled {
		o.OnSettled(t)
	}
}

func (o *OfPlanes) OnLandedTold(n *world.Node, t *world.Transfer, complete bool) {
	o.prompt.landedPartly(n, t, complete)
}

func (o *OfPlanes) OnCopySettled(c *world.Copy) { o.arena.copySettled(c) }

func (o *OfPlanes) OnSettled(t *world.Transfer) {
	o.lent.settled(t)
	o.words.finished(t)
}

func (o *OfPlanes) OnRevoked(n *world.Node, id effects.GrantID) {
	o.pages.revoked(n, id)
	o.words.revoked(n, id)
}

func (o *OfPlanes) OnScattered(n *world.Node, t effects.Ticket, code effects.Code) {
	o.scatter.scattered(n, t, code)
	o.fetch.scattered(t, code)
}

func (o *OfPlanes) OnImport(n *world.Node, e *effects.Import) { o.fetch.importing(n, e) }

func (o *OfPlanes) OnPublish(n *world.Node, pages []effects.Page) {
	o.loans.publishing(n, pages)
	o.cache.used(n, pages)
	if o.truth.w.Flows.Alone() {
		o.blocks.published(n, pages)
	}
}

func (o *OfPlanes) OnGrant(n *world.Node, e *effects.Grant) {
	o.pages.granting(n, e)
	o.landed.took(n, e.Pages, e.Peer)
	o.cache.used(n, e.Pages)
}

func (o *OfPlanes) OnLend(n *world.Node, g *world.Grant) { o.loans.lending(n, g) }

func (o *OfPlanes) OnTransfer(n *world.Node, t *world.Transfer, e *effects.Transfer) {
	o.lent.transferring(n, t, e)
	if o.truth.w.Flows.Alone() {
		o.blocks.transferring(n, t)
	}
	o.prompt.transferring(n, t, e)
	o.words.transferring(n, t)
	o.landed.reads(n, e)
}

func (o *OfPlanes) OnCancel(n *world.Node, t *world.Transfer) { o.queue.stopped(n, t) }

func (o *OfPlanes) OnCopy(n *world.Node, c *world.Copy) { o.arena.copying(n, c) }

func (o *OfPlanes) OnCarried(n *world.Node, e *effects.Send)  { o.pages.carried(n, e) }
func (o *OfPlanes) OnStoreIn(n *world.Node, e *effects.Store) { o.pages.takes(n, e) }

func (o *OfPlanes) OnScatter(n *world.Node, e *effects.Scatter) bool {
	return o.scatter.scattering(n, e)
}

func (o *OfPlanes) OnSubmit(n *world.Node, t *world.Transfer) { o.lease.submitting(n, t) }
func (o *OfPlanes) OnFlying(t *world.Transfer, pair int)      { o.pages.flying(t, pair) }
func (o *OfPlanes) OnFlown(t *world.Transfer, pair int)       { o.pages.flown(t, pair) }
func (o *OfPlanes) OnStore(t *world.Transfer, pair, half int) { o.pages.storing(t, pair, half) }
func (o *OfPlanes) OnPassed(t *world.Transfer, pair int)      { o.pages.passing(t, pair) }
func (o *OfPlanes) OnLanded(t *world.Transfer)                { o.pages.landed(t) }
func (o *OfPlanes) OnLoad(t *world.Transfer, pair int)        { o.fills.reading(t, pair) }
func (o *OfPlanes) OnReadPassed(t *world.Transfer, pair int)  { o.fills.passed(t, pair) }
func (o *OfPlanes) OnUnmap(n *world.Node, id effects.GrantID) { o.pages.unmapped(n, id) }

func (o *OfPlanes) OnMove(c *world.Copy, p effects.CopyPair) { o.arena.moving(c, p) }

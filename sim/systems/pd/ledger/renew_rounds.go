package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// If a renewal does not name all offers that a reader keeps of a sender, the following renewals must name the rest.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkRenewRound = oracle.NewCheck("S18", "renewals that name all deferred offers")
	checkRenewSize  = oracle.NewCheck("S17", "leases in a renewal")
)

// leasesPerRenewal returns the largest number of leases that a renewal of n names.
func leasesPerRenewal(n *world.Node) int { return int(cmp.Or(pd.InfoOf(n).Cfg.Tuning.RenewsMax, 512)) }

// recordRenewal records which of the offers that n keeps are named by a renewal.
func (or *renewOracle) recordRenewal(n *world.Node, c *world.Conn, body []byte) {
	m := protocol.RenewRequest{}
	if !n.KeepsOffers || !protocol.MayHaveTag(body, protocol.TagRenewRequest, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	if or.countJudged(checkRenewSize); len(m.Grants) > leasesPerRenewal(n) || len(m.Done) > leasesPerRenewal(n) {
		or.fail(checkRenewSize, "node %d names %d leases to be renewed and %d that are over in a message; %d are allowed",
			n.AsSubject(), len(m.Grants), len(m.Done), leasesPerRenewal(n))
		return
	}
	or.recordTry(n, c)
	kept := or.oracles().deferredOffers.stateOf(n).offers
	keptCount := 0 // Offers that a machine may keep. It may have dropped some already.
	for i := range kept {
		if k := &kept[i]; k.peer == effects.Incarnation(m.To) && or.oracles().deferredOffers.mayBeKept(k) {
			keptCount++
			k.named = k.lease != nil && slices.Contains(m.Grants, uint64(k.lease.ID))
			or.verifyWanted(n, k)
		}
	}
	for i := range kept {
		if k := &kept[i]; k.peer == effects.Incarnation(m.To) {
			k.maxOffers = max(k.maxOffers, keptCount)
		}
	}
	pd.CountLoad(&or.w.Result, pd.LeasesRenewed, keptCount, leasesPerRenewal(n))
}

// verifyRound records that an incarnation of a sender has replied to a renewal. The check fails if an offer of this
// incarnation was left out by more renewals than are needed to name all offers twice. Offers of earlier incarnations do
// not count.
func (or *renewOracle) verifyRound(n *world.Node, sender int32, incarnation effects.Incarnation) {
	if or.w.Nodes[sender].Roams { // A round begins anew whenever the sender names its other address.
		or.countVoid(checkRenewRound)
		return
	}
	kept := or.oracles().deferredOffers.stateOf(n).offers
	for i := range kept {
		k := &kept[i]
		if k.altered || k.peer != incarnation || !or.oracles().deferredOffers.isRenewable(n, k) {
			continue
		}
		or.countJudged(checkRenewRound)
		if k.unnamedRenewals++; k.named {
			k.unnamedRenewals = 0
		}
		if limit := leasesPerRenewal(n); k.unnamedRenewals > 2*((k.maxOffers+limit-1)/limit)+1 {
			or.fail(checkRenewRound, "node %d has requested renewals from node %d %d times, and none of grant %d",
				n.AsSubject(), oracle.Node(sender), k.unnamedRenewals, k.owner.Node.GrantSubject(k.lease.ID))
			return
		}
	}
}

// isRenewable reports whether n should renew an offer: not once the reader's right may be over.
func (or *deferredOfferOracle) isRenewable(n *world.Node, k *deferredOffer) bool {
	return !k.altered && !k.uncertain && or.mayBeKept(k) && or.w.ReadClock(n) < k.rightUntil &&
		slices.ContainsFunc(k.chunks, func(c offeredChunk) bool { return !c.consumed && !c.uncertain })
}

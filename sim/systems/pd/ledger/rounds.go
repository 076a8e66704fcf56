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

var checkRenewRound = oracle.NewCheck("S18", "renewals of all that is kept")

// renewals returns the largest number of leases that a renewal of n names.
func renewals(n *world.Node) int { return int(cmp.Or(pd.Its(n).Cfg.Tuning.RenewsMax, 512)) }

// asking records which of the offers that n keeps are named by a renewal.
func (or *renewOracle) asking(n *world.Node, c *world.Conn, body []byte) {
	m := protocol.RenewRequest{}
	if !n.Delays || !protocol.MayHaveTag(body, protocol.TagRenewRequest, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	or.tries(n, c)
	kept := or.all().kept.at(n).kept
	of := 0 // Offers that a machine may keep. It may have dropped some already.
	for i := range kept {
		if k := &kept[i]; k.peer == effects.Incarnation(m.To) && or.all().kept.stands(k) {
			of++
			k.spokenOf = k.loan != nil && slices.Contains(m.Grants, uint64(k.loan.ID))
			or.wanted(n, k)
		}
	}
	for i := range kept {
		if k := &kept[i]; k.peer == effects.Incarnation(m.To) {
			k.beside = max(k.beside, of)
		}
	}
	pd.Loaded(&or.w.Result, pd.LeasesRenewed, of, renewals(n))
}

// passing records that an incarnation of a sender has replied to a renewal. The check fails if an offer of this
// incarnation was left out by more renewals than are needed to name all offers twice. Offers of earlier incarnations do
// not count.
func (or *renewOracle) passing(n *world.Node, sender int32, who effects.Incarnation) {
	kept := or.all().kept.at(n).kept
	for i := range kept {
		k := &kept[i]
		if k.lies || k.peer != who || !or.all().kept.renewable(n, k) {
			continue
		}
		or.judged(checkRenewRound)
		if k.passed++; k.spokenOf {
			k.passed = 0
		}
		if most := renewals(n); k.passed > 2*((k.beside+most-1)/most)+1 {
			or.fail(checkRenewRound, "node %d has asked node %d for more time %d times, and not for grant %d",
				n.It(), oracle.Node(sender), k.passed, k.owner.Node.ItsGrant(k.loan.ID))
			return
		}
	}
}

// renewable reports whether n should renew an offer: not once the reader's right may be over.
func (or *keptOracle) renewable(n *world.Node, k *keptOffer) bool {
	return !k.lies && !k.shaky && or.stands(k) && or.w.Clock(n) < k.right &&
		slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.left && !c.perhaps })
}

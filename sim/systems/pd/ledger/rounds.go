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

// Where one renewal does not speak of all that is kept of a sender, those that follow speak of the rest.

var checkRenewRound = oracle.NewCheck("S18", "renewals of all that is kept")

// renewals are the leases that one renewal of n's speaks of at the most.
func renewals(n *world.Node) int { return int(cmp.Or(pd.Its(n).Cfg.Tuning.RenewsMax, 512)) }

// asking notes which of the offers that n keeps a renewal speaks of.
func (or *renewOracle) asking(n *world.Node, c *world.Conn, body []byte) {
	m := protocol.RenewRequest{}
	if !n.Delays || !protocol.MayBe(body, protocol.TagRenewRequest, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	or.tries(n, c)
	kept := or.all().kept.at(n).kept
	of := 0 // That a machine may know of: some it may have dropped already.
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

// passing notes that a renewal was answered by an incarnation of a sender, and checks that none of its offers is passed
// more often than it takes to speak of all of them, twice. What its former incarnations offered it knows nothing of.
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

// renewable says whether more time is asked for an offer: not once its reader's right may be over.
func (or *keptOracle) renewable(n *world.Node, k *keptOffer) bool {
	return !k.lies && !k.shaky && or.stands(k) && or.w.Clock(n) < k.right &&
		slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.left && !c.perhaps })
}

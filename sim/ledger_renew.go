package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkRenewID     = oracle.NewCheck("S12", "ids of renewed loans")
	checkRenewInTime = oracle.NewCheck("S24", "renewals in time")
	checkRenewBound  = oracle.NewCheck("L2", "renewals within bounds")
)

// renewOracle judges renewals of loans.
type renewOracle struct{ judge }

// renewing notes that an owner prolongs loans, as its answer leaves: none that has ended, and none beyond its longest life.
func (or *renewOracle) renewing(n *node, body []byte) {
	m := protocol.RenewResponse{}
	if !n.pulls || !protocol.MayBe(body, protocol.TagRenewResponse, &wireLimits) || m.Decode(body, &wireLimits) != nil {
		return
	}
	now := or.w.clock(n)
	until := now.Add(effects.Duration(m.LeaseNS))
	for _, id := range m.Extended {
		or.judged(checkRenewID, checkRenewInTime, checkRenewBound)
		g := n.grants[effects.GrantID(id)]
		switch {
		case g == nil || !g.read:
			or.fail(checkRenewID, "node %d prolongs grant %d, which it never gave to read",
				n.it(), n.itsGrant(effects.GrantID(id)))
		case g.revoking || now > g.ends || g.loan.heard:
			or.fail(checkRenewInTime, "node %d prolongs grant %d, which had ended", n.it(), n.itsGrant(effects.GrantID(id)))
		case until > g.loan.began.Add(n.cfg.LoanMax):
			or.fail(checkRenewBound, "node %d prolongs grant %d beyond the longest life of an offer",
				n.it(), n.itsGrant(effects.GrantID(id)))
		default:
			g.ends = max(g.ends, until)
		}
	}
}

// renewed notes that a reader is told of loans that are over: it may drop what it keeps of them.
func (or *renewOracle) renewed(n *node, body []byte) {
	kept := or.all().kept.at(n)
	m := protocol.RenewResponse{}
	if !n.delays || !protocol.MayBe(body, protocol.TagRenewResponse, &wireLimits) || m.Decode(body, &wireLimits) != nil {
		return
	}
	for i := range kept.kept {
		if k := &kept.kept[i]; k.loan == nil || slices.Contains(m.Gone, uint64(k.loan.id)) {
			k.shaky = true
		}
	}
}

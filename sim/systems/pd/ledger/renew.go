package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
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
func (or *renewOracle) renewing(n *world.Node, body []byte) {
	m := protocol.RenewResponse{}
	if !n.Pulls || !protocol.MayBe(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	now := or.w.Clock(n)
	until := now.Add(effects.Duration(m.LeaseNS))
	for _, id := range m.Extended {
		or.judged(checkRenewID, checkRenewInTime, checkRenewBound)
		g := n.Grants[effects.GrantID(id)]
		switch {
		case g == nil || !g.Read:
			or.fail(checkRenewID, "node %d prolongs grant %d, which it never gave to read",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		case g.Revoking || now > g.Ends || g.Loan.Heard:
			or.fail(checkRenewInTime, "node %d prolongs grant %d, which had ended", n.It(), n.ItsGrant(effects.GrantID(id)))
		case until > g.Loan.Began.Add(pd.Its(n).Cfg.LoanMax):
			or.fail(checkRenewBound, "node %d prolongs grant %d beyond the longest life of an offer",
				n.It(), n.ItsGrant(effects.GrantID(id)))
		default:
			g.Ends = max(g.Ends, until)
		}
	}
}

// renewed notes that a reader is told of loans that are over: it may drop what it keeps of them.
func (or *renewOracle) renewed(n *world.Node, body []byte) {
	kept := or.all().kept.at(n)
	m := protocol.RenewResponse{}
	if !n.Delays || !protocol.MayBe(body, protocol.TagRenewResponse, &pd.WireLimits) ||
		m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for i := range kept.kept {
		if k := &kept.kept[i]; k.loan == nil || slices.Contains(m.Gone, uint64(k.loan.ID)) {
			k.shaky = true
		}
	}
}

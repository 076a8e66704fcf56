package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// What is judged here.
var (
	checkRenewID     = newCheck("S12", "ids of renewed loans")
	checkRenewInTime = newCheck("S24", "renewals in time")
	checkRenewBound  = newCheck("L2", "renewals within bounds")
)

// renewing notes that an owner prolongs loans, as its answer leaves: none that has ended, and none beyond its longest life.
func (l *ledger) renewing(n *node, body []byte) {
	m := protocol.RenewResponse{}
	if !n.pulls || m.Decode(body, &wireLimits) != nil {
		return
	}
	now := l.w.clock(n)
	until := now.Add(effects.Duration(m.LeaseNS))
	for _, id := range m.Extended {
		l.judged(checkRenewID, checkRenewInTime, checkRenewBound)
		g := n.grants[effects.GrantID(id)]
		switch {
		case g == nil || !g.read:
			l.fail(checkRenewID, "node %d prolongs grant %d, which it never gave to read",
				n.it(), n.itsGrant(effects.GrantID(id)))
		case g.revoking || now > g.ends || g.loan.heard:
			l.fail(checkRenewInTime, "node %d prolongs grant %d, which had ended", n.it(), n.itsGrant(effects.GrantID(id)))
		case until > g.loan.began.Add(n.cfg.LoanMax):
			l.fail(checkRenewBound, "node %d prolongs grant %d beyond the longest life of an offer",
				n.it(), n.itsGrant(effects.GrantID(id)))
		default:
			g.ends = max(g.ends, until)
		}
	}
}

// renewed notes that a reader is told of loans that are over: it may drop what it keeps of them.
func (l *ledger) renewed(n *node, body []byte) {
	m := protocol.RenewResponse{}
	if !n.delays || m.Decode(body, &wireLimits) != nil {
		return
	}
	for i := range n.seen.kept {
		if k := &n.seen.kept[i]; k.loan == nil || slices.Contains(m.Gone, uint64(k.loan.id)) {
			k.shaky = true
		}
	}
}

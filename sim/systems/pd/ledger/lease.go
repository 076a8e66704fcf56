package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A lease ends at two times. The owner's end counts on the owner's clock from the grant. The holder's end counts on the
// holder's clock, from when the request left that the owner replied to. The holder's end must come first, whatever
// clocks and messages do (rule M4, S24).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWriteLease = oracle.NewCheck("S24", "leases of writes")
	checkSubmit     = oracle.NewCheck("S24", "accesses by both clocks")
	checkReadLease  = oracle.NewCheck("S24", "leases of reads")
)

// leaseTimeOracle judges accesses under a lease by the clocks of the owner and of the lease holder (S24).
type leaseTimeOracle struct{ oracleBase }

func (*leaseTimeOracle) subscribe(l *oracle.Subscriptions[leaseTimeOracle]) {
	oracle.On(l, func(o *leaseTimeOracle, _ *oracle.Call, e world.TransferSubmitted) {
		o.verifySubmission(e.Node, e.Transfer)
	})
	oracle.On(l, func(o *leaseTimeOracle, _ *oracle.Call, e world.BatchSubmitted) {
		o.verifySubmission(e.Node, e.Transfer)
	})
}

// recordBelief records what the reply to a request lets the lease holder assume: how long the grant lasts from now on.
// Only nodes are lease holders.
func (or *leaseTimeOracle) recordBelief(n *world.Node, r *world.Request, g *world.Grant) {
	if r.IsFromNode() {
		g.HolderExpiresAt = max(g.HolderExpiresAt, r.SentAt.Add(max(0, g.ExpiresAt.Sub(or.w.ReadClock(n)))))
	}
}

// verifyTransferLease checks the NotAfter of a Transfer, a write or a read, when the machine emits the Transfer.
func (or *leaseTimeOracle) verifyTransferLease(n *world.Node, t *world.Transfer) {
	if t.Read {
		or.verifyReadLease(n, t)
		return
	}
	g := t.Remote.Node.Grants[t.Grant]
	if !or.w.Conditions.Leased || !t.Remote.IsAlive() || g == nil || !pd.IsNameOf(n, g.Peer) {
		return
	}
	// The lease follows the owner's clock, and no reply of the owner carried it.
	if or.countJudged(checkWriteLease); g.IsRequestedByOwner() {
		if late := n.InstantOf(t.NotAfter) - t.Remote.Node.InstantOf(g.ExpiresAt); late > 0 {
			or.fail(checkWriteLease, "node %d allows writes of transfer %d until %d ns after the end of their grant by the "+
				"clock "+
				"of node %d", n.AsSubject(), oracle.Transfer(t.ID), late, t.Remote.Node.AsSubject())
		}
		return
	}
	if t.NotAfter > g.HolderExpiresAt {
		or.fail(checkWriteLease, "node %d allows writes of transfer %d until %d ns after the end of its lease",
			n.AsSubject(), oracle.Transfer(t.ID), t.NotAfter-g.HolderExpiresAt)
	}
}

// verifySubmission checks, when an access leaves the node, that the access is still allowed by the node's own clock,
// whatever the driver has checked. On leased planes it also checks the clock of the owner of the pages, which only the
// ledger can see. A driver may be slow between reading the clock and the access, by up to the guard.
func (or *leaseTimeOracle) verifySubmission(n *world.Node, t *world.Transfer) {
	or.countJudged(checkSubmit)
	if now := or.w.ReadClock(n); now > t.NotAfter {
		or.fail(checkSubmit, "node %d submits a page of transfer %d %d ns after the instant that its lease allows",
			n.AsSubject(), oracle.Transfer(t.ID), now-t.NotAfter)
	}
	if !or.w.Conditions.Leased || !t.Remote.IsAlive() {
		return
	}
	owner := t.Remote.Node
	g := owner.Grants[t.Grant]
	if g == nil {
		return
	}
	late := owner.ReadingAt(n.InstantOf(or.w.ReadClock(n).Add(pd.InfoOf(n).Cfg.LeaseGuard)))
	if late > g.ExpiresAt {
		or.fail(checkSubmit,
			"node %d submits a page of transfer %d so late that with a pause of its guard it would be %d ns after the end of the "+
				"lease by the clock of node %d", n.AsSubject(), oracle.Transfer(t.ID), late.Sub(g.ExpiresAt), owner.AsSubject())
	}
}

// verifyReadLease checks the NotAfter of a read. The owner gave the read lease without a request, so NotAfter must lie
// before the lease's end on the owner's clock, whatever the reader's clock shows.
func (or *leaseTimeOracle) verifyReadLease(n *world.Node, t *world.Transfer) {
	g := t.Lease
	if !or.w.Conditions.Leased || g == nil || !pd.IsNameOf(n, g.Peer) {
		return
	}
	owner := t.Remote.Node
	or.countJudged(checkReadLease)
	if late := n.InstantOf(t.NotAfter) - owner.InstantOf(g.ExpiresAt); late > 0 {
		or.fail(checkReadLease,
			"node %d allows reads of transfer %d until %d ns after the end of its lease by the clock of node %d",
			n.AsSubject(), oracle.Transfer(t.ID), late, owner.AsSubject())
	}
}

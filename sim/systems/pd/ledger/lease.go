package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A lease has two ends. The owner's end counts on the owner's clock from the grant. The holder's end counts on the
// holder's clock, from when the request left that the owner replied to. The holder's end must come first, whatever
// clocks and messages do (rule M4, S24).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWriteLease = oracle.NewCheck("S24", "leases of writes")
	checkSubmit     = oracle.NewCheck("S24", "accesses by both clocks")
	checkReadLease  = oracle.NewCheck("S24", "leases of reads")
)

// leaseOracle judges accesses under a lease by the clocks of the owner and of the lease holder (S24).
type leaseOracle struct{ judge }

func (*leaseOracle) listen(l *oracle.Listen[leaseOracle]) {
	oracle.On(l, func(o *leaseOracle, _ *oracle.Call, e world.Submitted) { o.submitting(e.Node, e.Transfer) })
	oracle.On(l, func(o *leaseOracle, _ *oracle.Call, e world.EpochSubmitted) { o.submitting(e.Node, e.Transfer) })
}

// promised records what the reply to a request lets the lease holder assume: how long the grant lasts from now on.
func (or *leaseOracle) promised(n *world.Node, r *world.Request, g *world.Grant) {
	if r.Conn != nil {
		g.Believed = max(g.Believed, r.Asked.Add(max(0, g.Ends.Sub(or.w.Clock(n)))))
	}
}

// leasing checks the NotAfter of a Transfer when the machine emits the Transfer.
func (or *leaseOracle) leasing(n *world.Node, t *world.Transfer) {
	if t.Read {
		or.leasingRead(n, t)
		return
	}
	g := t.Remote.Node.Grants[t.Grant]
	if !or.w.Setting.Leased || !t.Remote.Alive() || g == nil || !pd.IsNameOf(n, g.Peer) {
		return
	}
	if or.judged(checkWriteLease); len(g.Shared) > 0 { // The owner gave the lease without a request, by the owner's clock.
		if late := n.When(t.NotAfter) - t.Remote.Node.When(g.Ends); late > 0 {
			or.fail(checkWriteLease, "node %d allows writes of transfer %d until %d ns after the end of their grant by the "+
				"clock "+
				"of node %d", n.It(), oracle.Transfer(t.ID), late, t.Remote.Node.It())
		}
		return
	}
	if t.NotAfter > g.Believed {
		or.fail(checkWriteLease, "node %d allows writes of transfer %d until %d ns after the end of its lease",
			n.It(), oracle.Transfer(t.ID), t.NotAfter-g.Believed)
	}
}

// submitting checks, when an access leaves the node, that the access is still allowed: by the node's own clock,
// whatever the driver has checked, and by the clock of the owner of the pages, which only the ledger can see.
func (or *leaseOracle) submitting(n *world.Node, t *world.Transfer) {
	or.judged(checkSubmit)
	if now := or.w.Clock(n); now > t.NotAfter {
		or.fail(checkSubmit, "node %d submits a page of transfer %d %d ns after the instant that its lease allows",
			n.It(), oracle.Transfer(t.ID), now-t.NotAfter)
	}
	if !or.w.Setting.Leased || !t.Remote.Alive() {
		return
	}
	owner := t.Remote.Node
	if g := owner.Grants[t.Grant]; g != nil && or.w.Clock(owner) > g.Ends {
		or.fail(checkSubmit, "node %d submits a page of transfer %d %d ns after the lease ended by the clock of node %d",
			n.It(), oracle.Transfer(t.ID), or.w.Clock(owner).Sub(g.Ends), owner.It())
	}
}

// leasingRead checks the NotAfter of a read. The owner gave the read lease without a request, so NotAfter must lie
// before the lease's end on the owner's clock, whatever the reader's clock shows.
func (or *leaseOracle) leasingRead(n *world.Node, t *world.Transfer) {
	g := t.Under
	if !or.w.Setting.Leased || g == nil || !pd.IsNameOf(n, g.Peer) {
		return
	}
	owner := t.Remote.Node
	or.judged(checkReadLease)
	if late := n.When(t.NotAfter) - owner.When(g.Ends); late > 0 {
		or.fail(checkReadLease,
			"node %d allows reads of transfer %d until %d ns after the end of its lease by the clock of node %d",
			n.It(), oracle.Transfer(t.ID), late, owner.It())
	}
}

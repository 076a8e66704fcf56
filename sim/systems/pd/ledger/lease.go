package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Leases have two ends: the owner's, on his clock from when he granted, and the one that
// the holder may believe in, on his own clock from when the very request left that was
// answered. The second must come first, whatever clocks and messages do (rule M4, S24).

// What is judged here.
var (
	checkWriteLease = oracle.NewCheck("S24", "leases of writes")
	checkSubmit     = oracle.NewCheck("S24", "accesses by both clocks")
	checkReadLease  = oracle.NewCheck("S24", "leases of reads")
)

// leaseOracle judges accesses by the clocks of both ends.
type leaseOracle struct{ judge }

func (*leaseOracle) listen(l *oracle.Listen[leaseOracle]) {
	oracle.On(l, func(o *leaseOracle, _ *oracle.Call, e world.Submitted) { o.submitting(e.Node, e.Transfer) })
	oracle.On(l, func(o *leaseOracle, _ *oracle.Call, e world.EpochSubmitted) { o.submitting(e.Node, e.Transfer) })
}

// promised notes what a holder is told with the answer to a request: how long a grant
// stands from now on.
func (or *leaseOracle) promised(n *world.Node, r *world.Request, g *world.Grant) {
	if r.Conn != nil {
		g.Believed = max(g.Believed, r.Asked.Add(max(0, g.Ends.Sub(or.w.Clock(n)))))
	}
}

// leasing checks a Transfer's NotAfter as it leaves the machine.
func (or *leaseOracle) leasing(n *world.Node, t *world.Transfer) {
	if t.Read {
		or.leasingRead(n, t)
		return
	}
	g := t.Remote.Node.Grants[t.Grant]
	if !or.w.Setting.Leased || !t.Remote.Alive() || g == nil || !pd.IsNameOf(n, g.Peer) {
		return
	}
	if or.judged(checkWriteLease); len(g.Shared) > 0 { // It was given unasked, by the clock of who gave it.
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

// submitting checks, where an access leaves the node, that it is still allowed: by the
// node's own clock, whatever the driver believes it has checked, and by the clock of
// the owner of the pages, which nobody but the ledger can see.
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

// leasingRead checks the NotAfter of a read, whose lease its owner gave unasked: it must lie
// before that ends, wherever the reader's clock stands.
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

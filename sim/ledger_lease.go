package sim

import "github.com/kvferry/kvferry/sim/oracle"

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

// promised notes what a holder is told with the answer to a request: how long a grant
// stands from now on.
func (or *leaseOracle) promised(n *node, r *request, g *grant) {
	if r.conn != nil {
		g.believed = max(g.believed, r.asked.Add(max(0, g.ends.Sub(or.w.clock(n)))))
	}
}

// leasing checks a Transfer's NotAfter as it leaves the machine.
func (or *leaseOracle) leasing(n *node, t *transfer) {
	if t.read {
		or.leasingRead(n, t)
		return
	}
	g := t.remote.node.grants[t.grant]
	if !or.w.plan.Leased || !t.remote.alive() || g == nil || !n.is(g.peer) {
		return
	}
	if or.judged(checkWriteLease); t.notAfter > g.believed {
		or.fail(checkWriteLease, "node %d allows writes of transfer %d until %d ns after the end of its lease",
			n.it(), oracle.Transfer(t.id), t.notAfter-g.believed)
	}
}

// submitting checks, where an access leaves the node, that it is still allowed: by the
// node's own clock, whatever the driver believes it has checked, and by the clock of
// the owner of the pages, which nobody but the ledger can see.
func (or *leaseOracle) submitting(n *node, t *transfer) {
	or.judged(checkSubmit)
	if now := or.w.clock(n); now > t.notAfter {
		or.fail(checkSubmit, "node %d submits a page of transfer %d %d ns after the instant that its lease allows",
			n.it(), oracle.Transfer(t.id), now-t.notAfter)
	}
	if !or.w.plan.Leased || !t.remote.alive() {
		return
	}
	owner := t.remote.node
	if g := owner.grants[t.grant]; g != nil && or.w.clock(owner) > g.ends {
		or.fail(checkSubmit, "node %d submits a page of transfer %d %d ns after the lease ended by the clock of node %d",
			n.it(), oracle.Transfer(t.id), or.w.clock(owner).Sub(g.ends), owner.it())
	}
}

// leasingRead checks the NotAfter of a read, whose lease its owner gave unasked: it must lie
// before that ends, wherever the reader's clock stands.
func (or *leaseOracle) leasingRead(n *node, t *transfer) {
	g := t.under
	if !or.w.plan.Leased || g == nil || !n.is(g.peer) {
		return
	}
	owner := t.remote.node
	or.judged(checkReadLease)
	if late := n.when(t.notAfter) - owner.when(g.ends); late > 0 {
		or.fail(checkReadLease,
			"node %d allows reads of transfer %d until %d ns after the end of its lease by the clock of node %d",
			n.it(), oracle.Transfer(t.id), late, owner.it())
	}
}

package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkOneEpoch    = oracle.NewCheck("C1", "batches in one epoch")
	checkNotFenced   = oracle.NewCheck("C2", "submissions on epochs that are used")
	checkEpochNumber = oracle.NewCheck("C3", "numbers of epochs")
	checkNotListed   = oracle.NewCheck("C4", "submissions under grants that stand")
	checkToldOnce    = oracle.NewCheck("C5", "ends of transfers over communicators")
	checkIdle        = oracle.NewCheck("C5", "transfers that wait for hardware")
	checkEndProven   = oracle.NewCheck("C5", "settled transfers over communicators")
	checkRevoked     = oracle.NewCheck("C6", "revocations proven over communicators")
	checkBlame       = oracle.NewCheck("C7", "transfers that broke their epoch")
	checkNoProof     = oracle.NewCheck("C8", "links without proof")
)

// commOracle judges how epochs of communicators begin and end, by what hardware can do.
type commOracle struct{ judge }

// submits judges a submission as hardware gets it.
func (or *commOracle) submits(x *link, t *transfer, b commBatch) {
	c := x.comm
	or.judged(checkOneEpoch, checkNotFenced, checkNotListed)
	e := c.epoch(b.epoch)
	for _, other := range c.epochs {
		if other != e && !other.over && other.begun && slices.ContainsFunc(c.stream, func(o commBatch) bool {
			return o.epoch == other.number
		}) {
			or.fail(checkOneEpoch, "transfer %d is submitted in epoch %d of link %d while hardware may be at epoch %d",
				oracle.Transfer(t.id), b.epoch, oracle.Link(x.id), other.number)
			return
		}
	}
	switch {
	case e.fenced || e.over || !e.up:
		or.fail(checkNotFenced, "transfer %d is submitted in epoch %d of link %d, which is not used",
			oracle.Transfer(t.id), b.epoch, oracle.Link(x.id))
	case slices.Contains(e.revoked, t.grant) || t.since < e.since:
		or.fail(checkNotListed, "transfer %d is submitted in epoch %d of link %d under grant %d, which was taken back before",
			oracle.Transfer(t.id), b.epoch, oracle.Link(x.id), t.remote.node.itsGrant(t.grant))
	}
}

// said judges a word of an initiator's.
func (or *commOracle) said(x *link, s communicator.Say) {
	if s.Word != communicator.Offer {
		return
	}
	or.judged(checkEpochNumber)
	c, n := x.comm, or.w.nodes[x.from]
	if s.Epoch != uint64(len(c.epochs))+1 {
		or.fail(checkEpochNumber, "node %d offers epoch %d of link %d as its %dth",
			n.it(), s.Epoch, oracle.Link(x.id), len(c.epochs)+1)
		return
	}
	or.judged(checkNoProof)
	for _, e := range c.epochs {
		if !e.over {
			or.fail(checkNoProof, "node %d offers epoch %d of link %d while nothing proves epoch %d over",
				n.it(), s.Epoch, oracle.Link(x.id), e.number)
			return
		}
	}
}

// closes judges that an initiator closes its channel, which tells the target that it is done.
func (or *commOracle) closes(x *link) {
	or.judged(checkNoProof)
	for _, e := range x.comm.epochs {
		if !e.over && e.fenced {
			or.fail(checkNoProof, "node %d closes link %d while nothing proves epoch %d over",
				or.w.nodes[x.from].it(), oracle.Link(x.id), e.number)
			return
		}
	}
}

// waits judges that nothing waits on an epoch that is up where nothing is under way.
func (or *commOracle) waits(x *link) {
	c := x.comm
	if len(c.epochs) == 0 || len(c.jobs) == 0 {
		return
	}
	e := c.epochs[len(c.epochs)-1]
	if !e.up || e.fenced || e.over {
		return
	}
	if or.judged(checkIdle); c.m.Flying() == 0 {
		or.fail(checkIdle, "transfer %d waits on link %d, whose communicator is there and does nothing",
			oracle.Transfer(c.jobs[0]), oracle.Link(x.id))
	}
}

// touches says whether hardware may still be at pages of a transfer.
func (x *link) touches(t *transfer) bool {
	return slices.ContainsFunc(x.comm.stream, func(b commBatch) bool { return b.t == t.id })
}

// ends judges a TransferDone.
func (or *commOracle) ends(x *link, t *transfer, p communicator.Post) {
	or.judged(checkToldOnce, checkEndProven, checkBlame)
	switch touched := x.touches(t); {
	case t.reported:
		or.fail(checkToldOnce, "transfer %d is told its end twice", oracle.Transfer(t.id))
	case p.Settled && touched:
		or.fail(checkEndProven, "transfer %d is settled while hardware may be at its pages", oracle.Transfer(t.id))
	case p.Code == effects.Faulted && !slices.ContainsFunc(x.comm.epochs, func(e *commEpoch) bool {
		return slices.Contains(e.broke, t.id) && !e.heard
	}):
		or.fail(checkBlame, "transfer %d fails for an epoch of link %d that it did not break",
			oracle.Transfer(t.id), oracle.Link(x.id))
	}
}

// settles judges a Settled.
func (or *commOracle) settles(x *link, t *transfer) {
	or.judged(checkToldOnce, checkEndProven)
	switch {
	case !t.reported || t.settled:
		or.fail(checkToldOnce, "transfer %d is settled without having ended, or twice", oracle.Transfer(t.id))
	case x.touches(t):
		or.fail(checkEndProven, "transfer %d is settled while hardware may be at its pages", oracle.Transfer(t.id))
	}
}

// revoked judges that a grant is proven to be nobody's any more.
func (or *commOracle) revoked(n *node, r *commRevoke) {
	or.judged(checkRevoked)
	for _, name := range r.waits {
		x := or.w.links[name.link-1]
		if x.comm.reaches(x.comm.epoch(name.epoch)) {
			or.fail(checkRevoked, "node %d takes grant %d for revoked while epoch %d of link %d may reach its pool",
				n.it(), n.itsGrant(r.grant), name.epoch, oracle.Link(name.link))
			return
		}
	}
}

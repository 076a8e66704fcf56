package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
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
	checkCommTurn    = oracle.NewCheck("L7", "batches of a link in order")
)

// commOracle judges how epochs of communicators begin and end, given what hardware can do (C1 to C8).
type commOracle struct {
	judge
	through []batchesThrough `snap:"skip"` // transfers whose end was not reported
}

func (*commOracle) listen(l *oracle.Listen[commOracle]) {
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochSubmitted) { o.submits(e.Link, e.Transfer, e.Batch) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochSaid) { o.said(e.Link, e.Say) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochPumped) { o.waits(e.Link) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochEnded) { o.ends(e.Link, e.Transfer, e.Post) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochSettled) { o.settles(e.Link, e.Transfer) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.EpochsRevoked) { o.revoked(e.Node, e.Revoke) })
	oracle.On(l, func(o *commOracle, _ *oracle.Call, e world.ChannelClosed) { o.closes(e.Link) })
}

// reset drops the transfers of the previous run, because transfers are numbered anew in each run.
func (or *commOracle) reset(int) { or.through = or.through[:0] }

// batchesThrough records that the last batch of a transfer was submitted on an epoch of the transfer's link.
type batchesThrough struct{ link, epoch, transfer uint64 }

// submits judges a batch when the batch is submitted to the hardware.
func (or *commOracle) submits(x *world.Link, t *world.Transfer, b world.CommBatch) {
	c := x.Comm
	or.judged(checkOneEpoch, checkNotFenced, checkNotListed)
	e := c.Epoch(b.Epoch)
	for _, other := range c.Epochs {
		if other != e && !other.Over && other.Begun && slices.ContainsFunc(c.Stream, func(o world.CommBatch) bool {
			return o.Epoch == other.Number
		}) {
			or.fail(checkOneEpoch, "transfer %d is submitted in epoch %d of link %d while hardware may be at epoch %d",
				oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID), other.Number)
			return
		}
	}
	switch {
	case e.Fenced || e.Over || !e.Up:
		or.fail(checkNotFenced, "transfer %d is submitted in epoch %d of link %d, which is not used",
			oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID))
	case slices.Contains(e.Revoked, t.Grant) || t.Since < e.Since:
		or.fail(checkNotListed, "transfer %d is submitted in epoch %d of link %d under grant %d, which was taken back before",
			oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID), t.Remote.Node.ItsGrant(t.Grant))
	}
	or.inOrder(x, t, b)
}

// inOrder checks that earlier transfers of the link have nothing left to submit on this epoch (L7).
func (or *commOracle) inOrder(x *world.Link, t *world.Transfer, b world.CommBatch) {
	or.judged(checkCommTurn)
	for _, id := range x.Comm.Jobs[:slices.Index(x.Comm.Jobs, t.ID)] {
		if !slices.Contains(or.through, batchesThrough{x.ID, b.Epoch, id}) {
			or.fail(checkCommTurn, "transfer %d is submitted on link %d before transfer %d, which waits longer",
				oracle.Transfer(t.ID), oracle.Link(x.ID), oracle.Transfer(id))
			return
		}
	}
	if b.Last(t) {
		or.through = append(or.through, batchesThrough{x.ID, b.Epoch, t.ID})
	}
}

// said judges an offer of an epoch when the initiator sends the offer.
func (or *commOracle) said(x *world.Link, s communicator.Message) {
	if s.Kind != communicator.MessageOffer {
		return
	}
	or.judged(checkEpochNumber)
	c, n := x.Comm, or.w.Nodes[x.From]
	if s.Epoch != uint64(len(c.Epochs))+1 {
		or.fail(checkEpochNumber, "node %d offers epoch %d of link %d as its %dth",
			n.It(), s.Epoch, oracle.Link(x.ID), len(c.Epochs)+1)
		return
	}
	or.judged(checkNoProof)
	for _, e := range c.Epochs {
		if !e.Over {
			or.fail(checkNoProof, "node %d offers epoch %d of link %d while nothing proves epoch %d over",
				n.It(), s.Epoch, oracle.Link(x.ID), e.Number)
			return
		}
	}
}

// closes judges the close of a channel by an initiator, which tells the target that the initiator is done.
func (or *commOracle) closes(x *world.Link) {
	or.judged(checkNoProof)
	for _, e := range x.Comm.Epochs {
		if !e.Over && e.Fenced {
			or.fail(checkNoProof, "node %d closes link %d while nothing proves epoch %d over",
				or.w.Nodes[x.From].It(), oracle.Link(x.ID), e.Number)
			return
		}
	}
}

// waits checks that no transfer waits on an epoch that is up while nothing is in flight.
func (or *commOracle) waits(x *world.Link) {
	c := x.Comm
	if len(c.Epochs) == 0 || len(c.Jobs) == 0 {
		return
	}
	e := c.Epochs[len(c.Epochs)-1]
	if !e.Up || e.Fenced || e.Over {
		return
	}
	if or.judged(checkIdle); c.M.CountInFlight() == 0 {
		or.fail(checkIdle, "transfer %d waits on link %d, whose communicator is there and does nothing",
			oracle.Transfer(c.Jobs[0]), oracle.Link(x.ID))
	}
}

// ends judges the report that a transfer has ended (TransferDone).
func (or *commOracle) ends(x *world.Link, t *world.Transfer, p communicator.Post) {
	or.judged(checkToldOnce, checkEndProven, checkBlame)
	or.through = slices.DeleteFunc(or.through, func(o batchesThrough) bool { return o.transfer == t.ID })
	switch touched := x.Touches(t); {
	case t.Reported:
		or.fail(checkToldOnce, "transfer %d is told its end twice", oracle.Transfer(t.ID))
	case p.Settled && touched:
		or.fail(checkEndProven, "transfer %d is settled while hardware may be at its pages", oracle.Transfer(t.ID))
	case p.Code == effects.Faulted && !slices.ContainsFunc(x.Comm.Epochs, func(e *world.CommEpoch) bool {
		return slices.Contains(e.Broke, t.ID) && !e.Heard
	}):
		or.fail(checkBlame, "transfer %d fails for an epoch of link %d that it did not break",
			oracle.Transfer(t.ID), oracle.Link(x.ID))
	}
}

// settles judges the report that a transfer has settled (Settled).
func (or *commOracle) settles(x *world.Link, t *world.Transfer) {
	or.judged(checkToldOnce, checkEndProven)
	switch {
	case !t.Reported || t.Settled:
		or.fail(checkToldOnce, "transfer %d is settled without having ended, or twice", oracle.Transfer(t.ID))
	case x.Touches(t):
		or.fail(checkEndProven, "transfer %d is settled while hardware may be at its pages", oracle.Transfer(t.ID))
	}
}

// revoked judges a proof that nothing can use a grant any more.
func (or *commOracle) revoked(n *world.Node, r *world.CommRevoke) {
	or.judged(checkRevoked)
	for _, name := range r.Waits {
		x := or.w.Links[name.Link-1]
		if x.Comm.Reaches(x.Comm.Epoch(name.Epoch)) {
			or.fail(checkRevoked, "node %d takes grant %d for revoked while epoch %d of link %d may reach its pool",
				n.It(), n.ItsGrant(r.Grant), name.Epoch, oracle.Link(name.Link))
			return
		}
	}
}

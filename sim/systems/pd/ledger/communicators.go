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
	checkOneEpoch     = oracle.NewCheck("C1", "batches in one epoch")
	checkEpochUsable  = oracle.NewCheck("C2", "submissions on usable epochs")
	checkEpochNumber  = oracle.NewCheck("C3", "numbers of epochs")
	checkGrantInForce = oracle.NewCheck("C4", "submissions under grants in force")
	checkReportedOnce = oracle.NewCheck("C5", "ends of transfers over communicators")
	checkIdle         = oracle.NewCheck("C5", "transfers that wait for hardware")
	checkEndProven    = oracle.NewCheck("C5", "settled transfers over communicators")
	checkRevoked      = oracle.NewCheck("C6", "revocations proven over communicators")
	checkBlame        = oracle.NewCheck("C7", "transfers that broke their epoch")
	checkNoProof      = oracle.NewCheck("C8", "links without proof")
	checkBatchOrder   = oracle.NewCheck("L7", "batches of a link in order")
)

// communicatorOracle judges how epochs of communicators begin and end, given what hardware can do (C1 to C8).
type communicatorOracle struct {
	oracleBase
	lastBatches []lastBatch `snap:"skip"` // transfers whose end was not reported
	formings    []forming   `snap:"skip"` // of each link with an epoch
	ticked      uint64      `snap:"skip"` // the link whose machine has just handled a Tick; 0: none
}

func (*communicatorOracle) subscribe(l *oracle.Subscriptions[communicatorOracle]) {
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.BatchSubmitted) {
		o.verifySubmission(e.Link, e.Transfer, e.Batch)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochEvent) { o.handleEvent(e.Link, e.Event) })
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochMessage) {
		o.verifyOffer(e.Link, e.Say)
		o.recordOffer(e.Link, e.Say)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochIdle) {
		o.verifyNotIdle(e.Link)
		o.verifyTries(e.Link)
		o.verifyExpiry(e.Link)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochTransferDone) {
		o.verifyEnd(e.Link, e.Transfer, e.Post)
		o.verifyExpired(e.Link, e.Transfer, e.Post)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochTransferSettled) {
		o.verifySettled(e.Link, e.Transfer)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.EpochGrantRevoked) {
		o.verifyRevoked(e.Node, e.Revoke)
	})
	oracle.On(l, func(o *communicatorOracle, _ *oracle.Call, e world.ChannelClosed) { o.verifyClose(e.Link) })
}

// reset drops the records of the previous run, because transfers and links are numbered anew in each run.
func (or *communicatorOracle) reset(int) {
	or.lastBatches, or.formings, or.ticked = or.lastBatches[:0], or.formings[:0], 0
}

// lastBatch records that the last batch of a transfer was submitted on an epoch of the transfer's link.
type lastBatch struct{ link, epoch, transfer uint64 }

// verifySubmission judges a batch when the batch is submitted to the hardware.
func (or *communicatorOracle) verifySubmission(x *world.Link, t *world.Transfer, b world.CommBatch) {
	c := x.Comm
	or.countJudged(checkOneEpoch, checkEpochUsable, checkGrantInForce)
	e := c.EpochAt(b.Epoch)
	for _, other := range c.Epochs {
		if other != e && !other.Stopped && other.TargetBegun && slices.ContainsFunc(c.Stream, func(o world.CommBatch) bool {
			return o.Epoch == other.Number
		}) {
			or.fail(checkOneEpoch, "transfer %d is submitted in epoch %d of link %d while hardware may be at epoch %d",
				oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID), other.Number)
			return
		}
	}
	switch {
	case e.Fenced || e.Stopped || !e.Up:
		or.fail(checkEpochUsable, "transfer %d is submitted in epoch %d of link %d, and the epoch is not usable",
			oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID))
	case slices.Contains(e.Revoked, t.Grant) || t.Since < e.ListedBefore:
		or.fail(checkGrantInForce, "transfer %d is submitted in epoch %d of link %d under grant %d, which was revoked before",
			oracle.Transfer(t.ID), b.Epoch, oracle.Link(x.ID), t.Remote.Node.GrantSubject(t.Grant))
	}
	or.verifyOrder(x, t, b)
}

// verifyOrder checks that earlier transfers of the link have nothing left to submit on this epoch (L7).
func (or *communicatorOracle) verifyOrder(x *world.Link, t *world.Transfer, b world.CommBatch) {
	or.countJudged(checkBatchOrder)
	for _, id := range x.Comm.Transfers[:slices.Index(x.Comm.Transfers, t.ID)] {
		if !slices.Contains(or.lastBatches, lastBatch{x.ID, b.Epoch, id}) {
			or.fail(checkBatchOrder, "transfer %d is submitted on link %d before transfer %d, which waits longer",
				oracle.Transfer(t.ID), oracle.Link(x.ID), oracle.Transfer(id))
			return
		}
	}
	if b.IsLast(t) {
		or.lastBatches = append(or.lastBatches, lastBatch{x.ID, b.Epoch, t.ID})
	}
}

// verifyOffer judges an offer of an epoch when the initiator sends the offer.
func (or *communicatorOracle) verifyOffer(x *world.Link, s communicator.Message) {
	if s.Kind != communicator.MessageOffer {
		return
	}
	or.countJudged(checkEpochNumber)
	c, n := x.Comm, or.w.Nodes[x.From]
	if s.Epoch != uint64(len(c.Epochs))+1 {
		or.fail(checkEpochNumber, "node %d offers epoch %d of link %d as epoch number %d",
			n.AsSubject(), s.Epoch, oracle.Link(x.ID), len(c.Epochs)+1)
		return
	}
	or.countJudged(checkNoProof)
	for _, e := range c.Epochs {
		if !e.Stopped {
			or.fail(checkNoProof, "node %d offers epoch %d of link %d without proof that epoch %d is over",
				n.AsSubject(), s.Epoch, oracle.Link(x.ID), e.Number)
			return
		}
	}
}

// verifyClose judges the close of a channel by an initiator, which tells the target that the initiator is done.
func (or *communicatorOracle) verifyClose(x *world.Link) {
	or.countJudged(checkNoProof)
	for _, e := range x.Comm.Epochs {
		if !e.Stopped && e.Fenced {
			or.fail(checkNoProof, "node %d closes link %d without proof that epoch %d is over",
				or.w.Nodes[x.From].AsSubject(), oracle.Link(x.ID), e.Number)
			return
		}
	}
}

// verifyNotIdle checks that no transfer waits on an epoch that is up while nothing is in flight.
func (or *communicatorOracle) verifyNotIdle(x *world.Link) {
	c := x.Comm
	if len(c.Epochs) == 0 || len(c.Transfers) == 0 {
		return
	}
	e := c.Epochs[len(c.Epochs)-1]
	if !e.Up || e.Fenced || e.Stopped {
		return
	}
	if or.countJudged(checkIdle); c.Machine.CountInFlight() == 0 {
		or.fail(checkIdle, "transfer %d waits on link %d, whose communicator is up and idle",
			oracle.Transfer(c.Transfers[0]), oracle.Link(x.ID))
	}
}

// verifyEnd judges the report that a transfer has ended (TransferDone).
func (or *communicatorOracle) verifyEnd(x *world.Link, t *world.Transfer, p communicator.Post) {
	or.countJudged(checkReportedOnce, checkEndProven, checkBlame)
	or.lastBatches = slices.DeleteFunc(or.lastBatches, func(o lastBatch) bool { return o.transfer == t.ID })
	switch touched := x.MayTouch(t); {
	case t.Reported:
		or.fail(checkReportedOnce, "transfer %d is reported as ended twice", oracle.Transfer(t.ID))
	case p.Settled && touched:
		or.fail(checkEndProven, "transfer %d is settled while the hardware may still access its pages", oracle.Transfer(t.ID))
	case p.Code == effects.Faulted && !slices.ContainsFunc(x.Comm.Epochs, func(e *world.CommEpoch) bool {
		return slices.Contains(e.FailedTransfers, t.ID) && !e.PeerFenced
	}):
		or.fail(checkBlame, "transfer %d fails with an epoch of link %d that it did not break",
			oracle.Transfer(t.ID), oracle.Link(x.ID))
	}
}

// verifySettled judges the report that a transfer has settled (Settled).
func (or *communicatorOracle) verifySettled(x *world.Link, t *world.Transfer) {
	or.countJudged(checkReportedOnce, checkEndProven)
	switch {
	case !t.Reported || t.Settled:
		or.fail(checkReportedOnce, "transfer %d is settled without having ended, or twice", oracle.Transfer(t.ID))
	case x.MayTouch(t):
		or.fail(checkEndProven, "transfer %d is settled while the hardware may still access its pages", oracle.Transfer(t.ID))
	}
}

// verifyRevoked judges a proof that nothing can use a grant any more.
func (or *communicatorOracle) verifyRevoked(n *world.Node, r *world.CommRevoke) {
	or.countJudged(checkRevoked)
	for _, name := range r.WaitsFor {
		x := or.w.Links[name.Link-1]
		if x.Comm.CanReach(x.Comm.EpochAt(name.Epoch)) {
			or.fail(checkRevoked, "node %d treats grant %d as revoked while epoch %d of link %d may still access its pool",
				n.AsSubject(), n.GrantSubject(r.Grant), name.Epoch, oracle.Link(name.Link))
			return
		}
	}
}

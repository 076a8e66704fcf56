package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// Hardware that hangs keeps pages. Therefore an epoch is fenced if a batch that was cancelled does not end within the
// grace period, or if no batch ends within the patience period. The machine acts when it is next called with the time
// after that, neither earlier nor later.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGrace       = oracle.NewCheck("L2", "cancelled batches, ended in time")
	checkPatience    = oracle.NewCheck("L2", "batches without progress, ended in time")
	checkFenceReason = oracle.NewCheck("L2", "epochs that are fenced for a reason")
)

// stuckGrace is how much later than due a machine may act: the driver calls the machine at the instant of its deadline,
// or as soon as it has submitted.
const stuckGrace = 2 * effects.Millisecond

// stuckOracle judges how long a node waits for batches (L2).
type stuckOracle struct {
	oracleBase
	flights []linkFlight `snap:"skip"` // empty in small worlds, in which time has no length
	reason  fenceReason  `snap:"skip"` // for which the machine that handles an event may fence its epoch
}

// A fenceReason is the reason for which a step of an initiator may fence its epoch.
type fenceReason uint8

const (
	noReason    fenceReason = iota
	timeReason              // at a Tick: a time is over
	otherReason             // the event says that the epoch or the link has failed, or ends the link
)

func (*stuckOracle) subscribe(l *oracle.Subscriptions[stuckOracle]) {
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.BatchSubmitted) {
		o.recordBatch(e.Node, e.Link, e.Transfer)
	})
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochEvent) { o.handleEvent(e.Node, e.Link, e.Event) })
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochTransferDone) {
		o.recordCancelled(e.Link, e.Transfer, e.Post)
	})
	oracle.On(l, func(o *stuckOracle, _ *oracle.Call, e world.EpochMessage) { o.verifyReason(e.Link, e.Say) })
}

// reset drops the records of the previous run, because links are numbered anew in each run.
func (or *stuckOracle) reset(int) { or.flights = or.flights[:0] }

// linkFlight records the batches that the hardware has in flight on a link, and the deadlines for these batches.
type linkFlight struct {
	link, epoch           uint64
	transfers             []uint64 // the transfer of each batch
	cancelled             []uint64 // the transfers in flight that were cancelled
	graceEnd, patienceEnd deadline // the first may be zero
	ended                 []uint64 // the transfers in flight that were reported as ended, for whatever reason
	// earliestEnd is the end of the grace of the first cancel since the last instant at which ended was empty.
	earliestEnd effects.Time
}

// deadline is an instant by which a machine must act, and how long the node had been frozen when the instant was set.
type deadline struct {
	at          effects.Time
	frozenAtSet int64
}

// deadlineIn returns the instant that is d after now, by n's clock.
func (or *stuckOracle) deadlineIn(n *world.Node, d effects.Duration) deadline {
	return deadline{or.w.ReadClock(n).Add(d), n.FrozenTime}
}

// isPast reports whether an instant has passed, with a grace period. Time in which the driver does not call the machine
// does not count.
func (or *stuckOracle) isPast(n *world.Node, u deadline) bool {
	return u.at != 0 && or.w.ReadClock(n) > u.at.Add(n.FrozenSince(u.frozenAtSet)+stuckGrace)
}

// flightOf returns the record of a link's current epoch, and nil if nothing is in flight.
func (or *stuckOracle) flightOf(x *world.Link) *linkFlight {
	i := slices.IndexFunc(or.flights, func(h linkFlight) bool { return h.link == x.ID })
	if i < 0 {
		return nil
	}
	h := &or.flights[i]
	if e := x.Comm.EpochAt(h.epoch); e.Fenced || e.Stopped || len(h.transfers) == 0 {
		or.flights = slices.Delete(or.flights, i, i+1)
		return nil
	}
	return h
}

// recordBatch records a batch when the batch is submitted to the hardware.
func (or *stuckOracle) recordBatch(n *world.Node, x *world.Link, t *world.Transfer) {
	if draw.IsFixed(or.w.Seed) {
		return
	}
	h := or.flightOf(x)
	if h == nil {
		or.flights = append(or.flights, linkFlight{link: x.ID, epoch: x.Comm.Machine.Epoch(), patienceEnd: or.deadlineIn(n,
			or.w.CommunicatorRules().ProgressTimeout)})
		h = &or.flights[len(or.flights)-1]
	}
	h.transfers = append(h.transfers, t.ID)
}

// handleEvent checks, when an event reaches a machine, that the machine has fenced every epoch that is overdue.
func (or *stuckOracle) handleEvent(n *world.Node, x *world.Link, ev *communicator.Event) {
	or.reason = reasonOf(ev)
	h := or.flightOf(x)
	if h == nil {
		return
	}
	if ev.Kind == communicator.Submitted { // The driver was busy until now, and received no events.
		for _, u := range []*deadline{&h.patienceEnd, &h.graceEnd} {
			if now := or.deadlineIn(n, 0); u.at != 0 && u.at < now.at {
				*u = now
			}
		}
		return
	}
	if or.verifyFenced(n, x, h); or.w.Failure != nil || ev.Kind != communicator.BatchEnded || ev.Epoch != h.epoch || !ev.Succeeded {
		return
	}
	done := h.transfers[0]
	h.transfers = h.transfers[1:]
	h.patienceEnd = or.deadlineIn(n, or.w.CommunicatorRules().ProgressTimeout)
	if !slices.Contains(h.transfers, done) {
		h.cancelled = slices.DeleteFunc(h.cancelled, func(id uint64) bool { return id == done })
		h.ended = slices.DeleteFunc(h.ended, func(id uint64) bool { return id == done })
	}
	if len(h.ended) == 0 {
		h.earliestEnd = 0
	}
	if len(h.cancelled) == 0 {
		h.graceEnd = deadline{}
	}
}

// verifyFenced fails the run if an epoch should be fenced by now and is not.
func (or *stuckOracle) verifyFenced(n *world.Node, x *world.Link, h *linkFlight) {
	or.countJudged(checkPatience)
	if h.graceEnd.at != 0 {
		or.countJudged(checkGrace)
	}
	switch {
	case or.isPast(n, h.patienceEnd):
		or.fail(checkPatience,
			"node %d has waited for transfer %d on link %d longer than the progress timeout, and does not fence the epoch of its "+
				"communicator",
			n.AsSubject(), oracle.Transfer(h.transfers[0]), oracle.Link(x.ID))
	case or.isPast(n, h.graceEnd):
		or.fail(checkGrace, "node %d has cancelled transfer %d on link %d, and does not fence the epoch after the grace period",
			n.AsSubject(), oracle.Transfer(h.cancelled[0]), oracle.Link(x.ID))
	}
}

// recordCancelled records that a transfer was cancelled, or has ended otherwise, while the hardware has a batch of the
// transfer.
func (or *stuckOracle) recordCancelled(x *world.Link, t *world.Transfer, p communicator.Post) {
	h := or.flightOf(x)
	if h == nil || p.Settled || !slices.Contains(h.transfers, t.ID) {
		return
	}
	h.ended = append(h.ended, t.ID)
	if p.Code != effects.Cancelled {
		return
	}
	if h.earliestEnd == 0 {
		h.earliestEnd = or.deadlineIn(or.w.Nodes[x.From], or.w.CommunicatorRules().Grace).at
	}
	if h.cancelled = append(h.cancelled, t.ID); h.graceEnd.at == 0 {
		h.graceEnd = or.deadlineIn(or.w.Nodes[x.From], or.w.CommunicatorRules().Grace)
	}
}

// reasonOf returns the reason for which a machine may fence its epoch when it handles an event.
func reasonOf(ev *communicator.Event) fenceReason {
	switch ev.Kind {
	case communicator.Tick:
		return timeReason
	case communicator.Transfer, communicator.Cancel:
		return noReason
	case communicator.Submitted:
		if ev.Outcome != communicator.SubmitFailed {
			return noReason
		}
	case communicator.BatchEnded:
		if ev.Succeeded {
			return noReason
		}
	default:
	}
	return otherReason
}

// verifyReason fails the run if a machine fences an epoch although nothing has failed and none of its times is over.
// Both times are those of the machine's own clock, so there is no tolerance.
func (or *stuckOracle) verifyReason(x *world.Link, s communicator.Message) {
	h := or.flightOf(x)
	if s.Kind != communicator.MessageFenced || h == nil {
		return
	}
	or.countJudged(checkFenceReason)
	n := or.w.Nodes[x.From]
	switch now := or.w.ReadClock(n); {
	case or.reason == noReason:
		or.fail(checkFenceReason, "node %d fences epoch %d of link %d without a reason", n.AsSubject(), s.Epoch, oracle.Link(x.ID))
	case or.reason == timeReason && now < h.patienceEnd.at && (h.earliestEnd == 0 || now < h.earliestEnd):
		or.fail(checkFenceReason, "node %d fences epoch %d of link %d although a batch ended within the progress timeout",
			n.AsSubject(), s.Epoch, oracle.Link(x.ID))
	}
}

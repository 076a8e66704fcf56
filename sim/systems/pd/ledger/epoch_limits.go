package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file judge the limits of an initiator, each of them in both directions: how often it tries to form an
// epoch, and how long its transfers may wait.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkTries  = oracle.NewCheck("L5", "epochs of a link that are tried again")
	checkExpiry = oracle.NewCheck("L2", "transfers over communicators that end with their time")
)

// A forming records how the epochs of a link were formed.
type forming struct {
	link   uint64
	failed int  // in a row, until now
	ended  bool // an event has ended the link, so that no epoch has to follow
	owes   bool // the machine must offer another epoch in this step
	last   bool // the machine may offer no further epoch
}

// formingOf returns the record of a link.
func (or *communicatorOracle) formingOf(x *world.Link) *forming {
	i := slices.IndexFunc(or.formings, func(f forming) bool { return f.link == x.ID })
	if i < 0 {
		i = len(or.formings)
		or.formings = append(or.formings, forming{link: x.ID})
	}
	return &or.formings[i]
}

// handleEvent records an event that reaches a machine.
func (or *communicatorOracle) handleEvent(x *world.Link, ev *communicator.Event) {
	if or.ticked = 0; ev.Kind == communicator.Tick {
		or.ticked = x.ID
	}
	switch ev.Kind {
	case communicator.Drop, communicator.Close, communicator.ChannelLost, communicator.NoProof:
		or.formingOf(x).ended = true
	case communicator.Accepted:
		if ev.Code != effects.OK && ev.Epoch == uint64(len(x.Comm.Epochs)) {
			or.formingOf(x).ended = true
		}
	case communicator.Formed:
		f := or.formingOf(x)
		if f.failed++; ev.Code == effects.OK {
			f.failed = 0
		}
		f.last = f.failed >= or.w.CommunicatorRules().Tries
		f.owes = ev.Code != effects.OK && !f.ended && !f.last
	default:
	}
}

// recordOffer fails the run if a machine offers another epoch after too many failures in a row.
func (or *communicatorOracle) recordOffer(x *world.Link, s communicator.Message) {
	if s.Kind != communicator.MessageOffer {
		return
	}
	f := or.formingOf(x)
	if or.countJudged(checkTries); f.last {
		or.fail(checkTries, "node %d offers epoch %d of link %d after %d failures in a row", or.w.Nodes[x.From].AsSubject(),
			s.Epoch, oracle.Link(x.ID), f.failed)
	}
	f.owes = false
}

// verifyTries fails the run if a machine gives a link up although fewer epochs have failed in a row than may.
func (or *communicatorOracle) verifyTries(x *world.Link) {
	i := slices.IndexFunc(or.formings, func(f forming) bool { return f.link == x.ID })
	if i >= 0 && or.formings[i].owes {
		or.formings[i].owes = false
		or.fail(checkTries, "node %d gives link %d up after %d failures in a row, and the limit is %d",
			or.w.Nodes[x.From].AsSubject(), oracle.Link(x.ID), or.formings[i].failed, or.w.CommunicatorRules().Tries)
	}
}

// verifyExpiry checks after a Tick that no transfer waits whose time is over. Only a transfer that has submitted all its
// batches in an epoch that is up goes on. Both times are those of the machine's own clock.
func (or *communicatorOracle) verifyExpiry(x *world.Link) {
	if or.ticked != x.ID || len(x.Comm.Epochs) == 0 || draw.IsFixed(or.w.Seed) {
		return
	}
	e := x.Comm.Epochs[len(x.Comm.Epochs)-1]
	isUp := e.Up && !e.Fenced && !e.Stopped
	for _, id := range x.Comm.Transfers {
		if isUp && slices.Contains(or.lastBatches, lastBatch{x.ID, e.Number, id}) {
			or.countVoid(checkExpiry)
			continue
		}
		t := or.w.Transfers[id-1]
		if or.countJudged(checkExpiry); or.w.ReadClock(or.w.Nodes[x.From]) > t.NotAfter {
			or.fail(checkExpiry, "transfer %d waits on link %d although its time is over", oracle.Transfer(id), oracle.Link(x.ID))
			return
		}
	}
}

// verifyExpired checks that a transfer that ends as expired at a Tick does so after its time.
func (or *communicatorOracle) verifyExpired(x *world.Link, t *world.Transfer, p communicator.Post) {
	if or.ticked != x.ID || p.Code != effects.Expired || draw.IsFixed(or.w.Seed) {
		return
	}
	if or.countJudged(checkExpiry); or.w.ReadClock(or.w.Nodes[x.From]) <= t.NotAfter {
		or.fail(checkExpiry, "transfer %d expires on link %d although its time is not over", oracle.Transfer(t.ID), oracle.Link(x.ID))
	}
}

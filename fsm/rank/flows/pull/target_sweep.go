package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// The methods in this file are called by sweeps of the rank, one row at a time.

// SweepUnreached drops the offer at a slot if its class cannot be reached and the offer arrived before that was
// known.
func (t *Target) SweepUnreached(e *flow.Env, slot int32, class int, code effects.Code) kernel.VisitResult {
	if h, o := e.Deferred.OfferAt(slot); h != 0 && o.Class == class && e.Deferred.IsCondemned(o) && !t.dropOffer(e, h, code, 0) {
		return kernel.SameSlot
	}
	return kernel.NextSlotIf(slot < e.Deferred.CountSlots())
}

// SweepFirstUnreached refuses the first offer of such a class that waits for the link.
func (t *Target) SweepFirstUnreached(e *flow.Env, class int, code effects.Code, why effects.Why) kernel.VisitResult {
	h := e.Pending.FirstUnlinkable(class)
	if h != 0 {
		e.Out.Mark(flow.Marks.NotReached)
		e.Work.SpendRows(1)
		t.refuseWaiting(e, h, code, &why)
	}
	return kernel.SameSlotIf(h != 0)
}

// SweepAbandoned drops the offer at a slot if its request is being abandoned.
func (t *Target) SweepAbandoned(e *flow.Env, slot int32) kernel.VisitResult {
	h, o := e.Deferred.OfferAt(slot)
	if h != 0 && e.Abandons.IsAbandoning(o.Request) && !t.dropOffer(e, h, effects.Cancelled, o.Request) {
		return kernel.SameSlot
	}
	return kernel.NextSlotIf(slot < e.Deferred.CountSlots())
}

// SweepDrain drops the offer at a slot.
func (t *Target) SweepDrain(e *flow.Env, slot int32) kernel.VisitResult {
	if h, _ := e.Deferred.OfferAt(slot); h != 0 {
		t.dropOfferChunks(e, h, effects.Draining)
	}
	return kernel.NextSlotIf(slot < e.Deferred.CountSlots())
}

// DrainFirstFetch ends the first waiting fetch.
func (t *Target) DrainFirstFetch(e *flow.Env) kernel.VisitResult {
	ended := e.Fetches.DrainFirst(&e.Env, &e.Store, &e.Deferred)
	t.queueEndedDones(e)
	return kernel.SameSlotIf(ended)
}

// SweepDrainFetch ends the fetch at a slot of the pipeline, if the fetch has read nothing. What was lent to such
// fetches is released when all of them have ended, or when this step has no work left.
func (t *Target) SweepDrainFetch(e *flow.Env, slot int32) kernel.VisitResult {
	ended := e.Fetches.SweepDrain(&e.Env, slot)
	if !ended || !e.Work.HasBudget() {
		e.Fetches.FinishDrained(&e.Env, &e.Store, &e.Deferred)
		t.queueEndedDones(e)
	}
	return kernel.NextSlotIf(ended)
}

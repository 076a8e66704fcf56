package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// The methods in this file are called by sweeps of the rank, one row at a time.

// UnreachedAt drops the offer at a slot if its class cannot be reached and the offer arrived before that was
// known.
func (t *Target) UnreachedAt(e *flow.Env, slot int32, class int, code effects.Code) kernel.Where {
	if h, o := e.Deferred.At(slot); h != 0 && o.Class == class && e.Deferred.Lost(o) && !t.dropOffer(e, h, code, 0) {
		return kernel.SameSlot
	}
	return kernel.At(slot < e.Deferred.Slots())
}

// UnreachedFirst refuses the first offer of such a class that waits for the link.
func (t *Target) UnreachedFirst(e *flow.Env, class int, code effects.Code, why effects.Why) kernel.Where {
	h := e.Pending.FirstLinking(class)
	if h != 0 {
		e.Out.Mark(flow.Marks.NotReached)
		e.Work.Spend(1)
		t.refuseWaiting(e, h, code, &why)
	}
	return kernel.Front(h != 0)
}

// AbandonAt drops the offer at a slot if its request is being abandoned.
func (t *Target) AbandonAt(e *flow.Env, slot int32) kernel.Where {
	h, o := e.Deferred.At(slot)
	if h != 0 && e.Abandons.Ordered(o.Request) && !t.dropOffer(e, h, effects.Cancelled, o.Request) {
		return kernel.SameSlot
	}
	return kernel.At(slot < e.Deferred.Slots())
}

// DrainAt drops the offer at a slot.
func (t *Target) DrainAt(e *flow.Env, slot int32) kernel.Where {
	if h, _ := e.Deferred.At(slot); h != 0 {
		t.drop(e, h, effects.Draining)
	}
	return kernel.At(slot < e.Deferred.Slots())
}

// DrainFirstFetch ends the first waiting fetch.
func (t *Target) DrainFirstFetch(e *flow.Env) kernel.Where {
	was := e.Fetches.DrainFirst(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
	return kernel.Front(was)
}

// DrainFetchAt ends the fetch at a slot of the pipeline, if the fetch has read nothing. What was lent to such
// fetches is released when all of them have ended, or when this step has no work left.
func (t *Target) DrainFetchAt(e *flow.Env, slot int32) kernel.Where {
	is := e.Fetches.DrainAt(&e.Env, slot)
	if !is || !e.Work.Left() {
		e.Fetches.Drained(&e.Env, &e.Store, &e.Deferred)
		t.tellEnded(e)
	}
	return kernel.At(is)
}

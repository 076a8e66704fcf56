package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// What sweeps of the rank ask of this flow, one row at a time.

// UnreachedAt drops the offer at a slot if it is of a class that cannot be reached and came before that was known.
func (t *Target) UnreachedAt(e *flow.Env, slot int32, class int, code effects.Code) kernel.Where {
	if h, o := e.Deferred.At(slot); h != 0 && o.Class == class && e.Deferred.Lost(o) && !t.dropOffer(e, h, code, 0) {
		return kernel.SameSlot
	}
	return kernel.At(slot < e.Deferred.Slots())
}

// UnreachedFirst answers the first offer of such a class that waits for the link.
func (t *Target) UnreachedFirst(e *flow.Env, class int, code effects.Code, why effects.Why) kernel.Where {
	h := e.Pending.FirstLinking(class)
	if h != 0 {
		e.Out.Mark(flow.Marks.NotReached)
		e.Work.Spend(1)
		t.refuseWaiting(e, h, code, &why)
	}
	return kernel.Front(h != 0)
}

// AbandonAt drops the offer at a slot if nobody wants its request any more.
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

// DrainFirstFetch ends the first of the fetches that wait.
func (t *Target) DrainFirstFetch(e *flow.Env) kernel.Where {
	was := e.Fetches.DrainFirst(&e.Env, &e.Store, &e.Deferred)
	t.tellEnded(e)
	return kernel.Front(was)
}

// DrainFetchAt ends the fetch at a slot of the pipeline, if it has read nothing. What was lent for them goes back when
// all have ended, or this step has no work left.
func (t *Target) DrainFetchAt(e *flow.Env, slot int32) kernel.Where {
	is := e.Fetches.DrainAt(&e.Env, slot)
	if !is || !e.Work.Left() {
		e.Fetches.Drained(&e.Env, &e.Store, &e.Deferred)
		t.tellEnded(e)
	}
	return kernel.At(is)
}

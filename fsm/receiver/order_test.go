package receiver

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// Offers that waited for the link to their pages come back before those that waited in the queue meanwhile: they are
// older. Seeds do not come upon it, because two of one sender must wait while others' turn keeps the second one from
// being looked at.
func TestWhoWaitedForTheLinkIsOlder(t *testing.T) {
	r := newRig(t, nil)
	r.guest(1)
	v := &env.Env{Now: r.now, Out: &r.out, Pools: &r.pools, Pool: r.pool, Timers: &r.timers}
	for i, linking := range []bool{true, false, true, false} {
		of := pendingRequest{offer: true, class: 1, operation: uint64(i + 1), linking: linking}
		if why := r.r.pending.wait(v, of, &effects.Received{}, nil, effects.Second); why != nil {
			t.Fatalf("offer %d cannot wait: %+v", i+1, why)
		}
	}
	order := func(list *table.List) (operations []uint64) {
		for h := list.Front(); h != 0; h = r.r.pending.rows.Next(h) {
			operations = append(operations, r.r.pending.rows.Get(h).operation)
		}
		return operations
	}
	r.r.OnReached(v, 1, effects.OK, effects.Why{})
	if got := order(&r.r.pending.queues[1]); !slices.Equal(got, []uint64{1, 3, 2, 4}) || r.r.pending.linking[1].Len() > 0 {
		t.Fatalf("the queue is %v, want 1 3 2 4, and for the link there wait %v still", got, order(&r.r.pending.linking[1]))
	}
	for h := r.r.pending.queues[1].Front(); h != 0; h = r.r.pending.queues[1].Front() {
		r.r.pending.remove(v, h) // It finds each in the list that it is in.
	}
}

package allocqueue

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// Offers that waited for the link to their pages come back before those that waited in the queue meanwhile: they are
// older. Seeds do not come upon it, because two of one sender must wait while others' turn keeps the second one from
// being looked at.
func TestRequeueLinkedKeepsAge(t *testing.T) {
	timers := kernel.NewTimers(4)
	v := &env.Env{Now: effects.Time(effects.Second), Out: &effects.Effects{}, Timers: &timers, Pool: new(memory.Pool)}
	p := New(Settings{WaitersMax: 8, WaitingBytes: 1 << 10, BypassMax: 2}, 2)
	for i, linking := range []bool{true, true, false, false} {
		of := Row{Class: 1, Operation: uint64(i + 1), AwaitsLink: linking}
		if why := p.Enqueue(v, of, &effects.Received{}, nil, effects.Second); why != nil {
			t.Fatalf("offer %d cannot wait: %+v", i+1, why)
		}
	}
	order := func(list *table.List) (operations []uint64) {
		for h := list.Front(); h != 0; h = p.rows.Next(h) {
			operations = append(operations, p.rows.Get(h).Operation)
		}
		return operations
	}
	p.RecordResult(v, p.queues[1].Front(), Unlinked, Shortfall{}, 0) // The link was lost when the third offer had its turn.
	p.RequeueLinked(1)
	if got := order(&p.queues[1]); !slices.Equal(got, []uint64{1, 2, 3, 4}) || p.linking[1].Len() > 0 {
		t.Fatalf("the queue is %v, want 1 2 3 4, and for the link there wait %v still", got, order(&p.linking[1]))
	}
	for h := p.queues[1].Front(); h != 0; h = p.queues[1].Front() {
		p.Remove(v, h) // It finds each in the list that it is in.
	}
	if p.Len()+p.RowsOf(1)+p.BytesOf(1)+timers.Len() > 0 {
		t.Errorf("%d wait, %d places, %d bytes and %d deadlines are kept", p.Len(), p.RowsOf(1), p.BytesOf(1), timers.Len())
	}
}

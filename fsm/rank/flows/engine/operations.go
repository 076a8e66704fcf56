package engine

import "github.com/kvferry/kvferry/fsm/rank/kernel"

// EachOperation calls visit with every Get, in the order of the slots: with those that wait for a chunk, and with those
// whose chunks the engine has not released.
func (x *Gets) EachOperation(timers *kernel.Timers, visit func(*kernel.Operation)) {
	for slot := range x.rows.Slots() {
		g := x.rows.Get(x.rows.At(slot))
		if g == nil {
			continue
		}
		op := kernel.Operation{Kind: "get", Stage: "waiting", Chunks: len(g.keyEnds), Since: g.since}
		op.Until, _ = timers.DeadlineOf(g.timer)
		if !g.waiting {
			op.Stage, op.Pages, op.Delivered = "pinned", len(g.pinned), true
		}
		visit(&op)
	}
}

// EachWaitingReserve calls visit with every reservation that waits for pages, the oldest first.
func (x *Engine) EachWaitingReserve(timers *kernel.Timers, visit func(*kernel.Operation)) {
	x.reserves.eachWaiting(timers, visit)
}

func (x *reserves) eachWaiting(timers *kernel.Timers, visit func(*kernel.Operation)) {
	for h := x.waiting.Front(); h != 0; h = x.slab.Next(h) {
		r := x.slab.Get(h)
		op := kernel.Operation{Kind: "reserve", Stage: "waiting", Chunks: int(r.count), Since: r.since}
		op.Until, _ = timers.DeadlineOf(r.timer)
		visit(&op)
	}
}

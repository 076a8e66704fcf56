package deferred

import "github.com/kvferry/kvferry/fsm/rank/kernel"

// EachOperation calls visit with every Fetch, in the order of the slots.
func (x *Fetches) EachOperation(visit func(*kernel.Operation)) {
	for slot := range x.rows.Slots() {
		f := x.rows.Get(x.rows.At(slot))
		if f == nil {
			continue
		}
		stage := "waiting"
		if f.running {
			stage = "reading"
		}
		visit(&kernel.Operation{Kind: "fetch", Stage: stage, Chunks: len(f.keyEnds), Since: f.since, Until: f.deadline})
	}
}

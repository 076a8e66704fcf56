package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// EachOperation calls visit with every run, in the order of the slots. The batches of a run are puts.
func (f *Source) EachOperation(timers *kernel.Timers, visit func(*kernel.Operation)) {
	for slot := range f.runs.Slots() {
		r := f.runs.Get(f.runs.At(slot))
		if r == nil {
			continue
		}
		op := kernel.Operation{Kind: "layerwise", Stage: "computing", Outbound: r.outbound, Chunks: len(r.chunks), Since: r.since}
		switch {
		case r.finishSave != 0:
			op.Stage = "finishing"
		case r.failCode != effects.OK:
			op.Stage = "failed"
		}
		if r.outbound != 0 {
			op.Addr = effects.Addr{Host: r.peer.Host, Port: r.peer.AllocPort}
		}
		op.Until, _ = timers.DeadlineOf(r.timer)
		visit(&op)
	}
}

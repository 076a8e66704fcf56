package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// device is what the engine's device code has to do with a command.
type device struct {
	corr  effects.Corr `snap:"skip"` // of the scatter under way; 0: none
	first uint32
	pages []effects.Page
	got   uint32 // chunks that it has read, whole and in order
}

// scatter is the engine's device code taking chunks, which takes some time and may fail.
func (w *world) scatter(n *node, e *effects.Scatter) {
	if !w.oracles.onScatter(n, e) {
		return
	}
	name := w.system.engine.named(w, n, e.Ticket)
	d, code := draw.Hash(w.seed, draw.Engine, uint64(name), uint64(e.First)<<8|12), effects.OK
	if f, yes := w.strikes(plan.FaultDMA, name, uint64(e.First)); yes {
		code = refusal(contract.Scattering, f)
	}
	w.forNode(n, d.Heavy(w.plan.Scatter*effects.Duration(len(e.Pages))),
		delivery{kind: kindScattered, a: uint64(e.Corr), b: uint64(e.Ticket), c: uint64(code)})
}

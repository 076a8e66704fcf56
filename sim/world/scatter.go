package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Device is the state of the engine's device code for a command.
type Device struct {
	Corr     effects.Corr `snap:"skip"` // of the scatter in flight; 0: none
	First    uint32
	Pages    []effects.Page
	Received uint32 // number of chunks read, complete and in order
}

// scatterChunks carries out an [effects.Scatter]. The engine's device code takes the chunks, which needs some time and
// may fail.
func (n *Node) scatterChunks(w *World, e *effects.Scatter) {
	OnScatteringChunks.Report(&w.Panel, n.ID, ScatteringChunks{n, e})
	if w.Failure != nil {
		return
	}
	if w.System.ScatterChunks(n, e) {
		return
	}
	name := w.System.CommandName(n, e.Ticket)
	d, code := draw.Hash(w.Seed, draw.Engine, uint64(name), uint64(e.First)<<8|12), effects.OK
	if f, yes := w.DrawStrike(plan.FaultDMAFailed, name, uint64(e.First)); yes {
		code = drawRefusal(contract.Scattering, f)
	}
	w.QueueForNode(n, d.HeavyTail(w.Conditions.ScatterTime*effects.Duration(len(e.Pages))),
		Delivery{Kind: KindScattered, A: uint64(e.Corr), B: uint64(e.Ticket), C: uint64(code)})
}

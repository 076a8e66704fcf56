package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A read on a leased plane: hardware loads the owner's pages by itself at any time. Nothing compares what the pages
// hold at that time, and only the destruction of a mapping stops the loads. Only the lease says whether the loaded
// content can be trusted (M4).

// submitLoad gives one page to the hardware.
func (t *Transfer) submitLoad(w *World, pair int) {
	if w.Struck(plan.FaultDMA, t.Name, uint64(pair)) {
		t.giveUp(w, effects.Faulted)
		return
	}
	d := draw.Hash(w.Seed, draw.Store, uint64(t.Name), uint64(pair))
	late := effects.Duration(0)
	if s, yes := w.Strikes(plan.FaultLateStore, t.Name, uint64(pair)); yes {
		late = s.Span(0, 3*effects.Second)
	}
	t.Flying++
	first := late + d.Heavy(w.Setting.Device)
	w.After(first, Delivery{Kind: KindLoad, Node: plan.Nobody, A: t.ID, B: uint64(pair), C: 0})
	w.After(first+d.Again().Heavy(w.Setting.Device), Delivery{Kind: KindLoad, Node: plan.Nobody, A: t.ID, B: uint64(pair),
		C: 1})
	if pair+1 < len(t.Pairs) {
		w.ForNode(t.Local.Node, d.Again().Again().Heavy(w.Setting.Device)+t.stalled(w, pair+1),
			Delivery{Kind: KindSubmit, A: t.ID, B: uint64(pair) + 1})
	}
}

// loadHalf is a load of the hardware, which no process can observe or stop.
func (t *Transfer) loadHalf(w *World, pair, half int) {
	w.Journal.Note(w.Now, KindLoad, t.Local.Node.ID, t.ID, uint64(pair), uint64(half))
	blocked := !t.Remote.Mapped() || t.Under == nil || t.Under.Gone ||
		half == 1 && w.Struck(plan.FaultHalfPage, t.Name, uint64(pair))
	if !blocked && t.Local.Mapped() {
		OnLoaded.Report(&w.Panel, oracle.Nobody, Loaded{t, pair})
		t.fetchHalf(pair, half)
	}
	if half == 0 {
		return
	}
	t.Flying--
	if !blocked {
		t.stored++
	} else if t.stop == effects.OK {
		t.stop = effects.Faulted
	}
	after := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), uint64(pair)).Heavy(w.Setting.Net / 2)
	switch {
	case t.Flying > 0 || t.stored < len(t.Pairs) && t.stop == effects.OK:
		return // More is in flight, or will be.
	case t.stored == len(t.Pairs):
		t.Ended = true
		t.conclude(w, effects.OK, after)
	default:
		t.Ended = true
		t.conclude(w, t.stop, after)
	}
}

// finishTransfer reports how a transfer ended or, if that was reported before, that the transfer is settled.
func (t *Transfer) conclude(w *World, code effects.Code, after effects.Duration) {
	if t.Reported {
		t.settle(w, code, after)
		return
	}
	t.report(w, code, true, after)
}

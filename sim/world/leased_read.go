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
	if w.IsStruck(plan.FaultDMAFailed, t.Name, uint64(pair)) {
		t.stopEarly(w, effects.Faulted)
		return
	}
	d := draw.Hash(w.Seed, draw.Store, uint64(t.Name), uint64(pair))
	delay := effects.Duration(0)
	if s, yes := w.DrawStrike(plan.FaultLateStore, t.Name, uint64(pair)); yes {
		delay = s.Duration(0, 3*effects.Second)
	}
	t.InFlight++
	first := delay + d.HeavyTail(w.Conditions.DeviceTime)
	w.QueueAfter(first, Delivery{Kind: KindLoad, Node: plan.NoNode, A: t.ID, B: uint64(pair), C: 0})
	w.QueueAfter(first+d.Rehash().HeavyTail(w.Conditions.DeviceTime), Delivery{Kind: KindLoad, Node: plan.NoNode, A: t.ID, B: uint64(pair),
		C: 1})
	if pair+1 < len(t.Pairs) {
		w.QueueForNode(t.Local.Node, d.Rehash().Rehash().HeavyTail(w.Conditions.DeviceTime)+t.drawStall(w, pair+1),
			Delivery{Kind: KindSubmit, A: t.ID, B: uint64(pair) + 1})
	}
}

// loadHalf is a load of the hardware, which no process can observe or stop.
func (t *Transfer) loadHalf(w *World, pair, half int) {
	w.Journal.AddLine(w.Now, KindLoad, t.Local.Node.ID, t.ID, uint64(pair), uint64(half))
	blocked := !t.Remote.IsMapped() || t.Lease == nil || t.Lease.Revoked ||
		half == 1 && w.IsStruck(plan.FaultHalfPage, t.Name, uint64(pair))
	if !blocked && t.Local.IsMapped() {
		OnPageLoaded.Report(&w.Panel, oracle.NoNode, PageLoaded{t, pair})
		t.moveFlipping(w, pair, half)
	}
	if half == 0 {
		return
	}
	t.InFlight--
	if !blocked {
		t.doneCount++
	} else if t.stopCode == effects.OK {
		t.stopCode = effects.Faulted
	}
	after := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), uint64(pair)).HeavyTail(w.Conditions.MessageTime / 2)
	switch {
	case t.InFlight > 0 || t.doneCount < len(t.Pairs) && t.stopCode == effects.OK:
		return // More is in flight, or will be.
	case t.doneCount == len(t.Pairs):
		t.Ended = true
		t.finishTransfer(w, effects.OK, after)
	default:
		t.Ended = true
		t.finishTransfer(w, t.stopCode, after)
	}
}

// finishTransfer reports how a transfer ended or, if that was reported before, that the transfer is settled.
func (t *Transfer) finishTransfer(w *World, code effects.Code, after effects.Duration) {
	if t.Reported {
		t.reportSettled(w, code, after)
		return
	}
	t.reportDone(w, code, true, after)
}

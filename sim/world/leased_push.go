package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// submitStore gives one page to hardware that stores by itself. The store happens later, whatever becomes of the
// process, unless the mapping is destroyed by then.
func (t *Transfer) submitStore(w *World, pair int) {
	n := t.Local.Node
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
	OnStoreInFlight.Report(&w.Panel, oracle.NoNode, StoreInFlight{t, pair})
	first := delay + d.HeavyTail(w.Conditions.DeviceTime)
	w.QueueAfter(first, Delivery{Kind: KindStore, Node: plan.NoNode, A: t.ID, B: uint64(pair), C: 0})
	w.QueueAfter(first+d.Rehash().HeavyTail(w.Conditions.DeviceTime), Delivery{Kind: KindStore, Node: plan.NoNode, A: t.ID, B: uint64(pair),
		C: 1})
	if pair+1 < len(t.Pairs) {
		w.QueueForNode(n, d.Rehash().Rehash().HeavyTail(w.Conditions.DeviceTime)+t.drawStall(w, pair+1),
			Delivery{Kind: KindSubmit, A: t.ID, B: uint64(pair) + 1})
	}
}

// storeHalf is a store of the hardware, which no process can observe or stop.
func (t *Transfer) storeHalf(w *World, pair, half int) {
	w.Journal.AddLine(w.Now, KindStore, t.Remote.Node.ID, t.ID, uint64(pair), uint64(half))
	blocked := !t.Remote.IsMapped()
	if !blocked {
		g := t.Remote.FindGrant(t.Grant)
		blocked = g == nil || g.Revoked
		if !blocked && half == 1 && w.IsStruck(plan.FaultHalfPage, t.Name, uint64(pair)) {
			blocked = true
		}
		if !blocked {
			OnHalfStored.Report(&w.Panel, oracle.NoNode, HalfStored{t, pair, half})
			t.moveFlipping(w, pair, half)
		}
	}
	if half == 0 {
		return
	}
	t.InFlight--
	OnStoreFinished.Report(&w.Panel, oracle.NoNode, StoreFinished{t, pair})
	if blocked {
		if t.stopCode == effects.OK {
			t.stopCode = effects.Faulted
		}
	} else {
		t.doneCount++
	}
	after := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), uint64(pair)).HeavyTail(w.Conditions.MessageTime / 2)
	switch {
	case t.doneCount == len(t.Pairs):
		t.Ended = true
		if t.Reported {
			t.reportSettled(w, effects.OK, after)
		} else {
			t.reportDone(w, effects.OK, true, after)
		}
	case t.InFlight == 0 && t.Reported:
		t.Ended = true
		t.reportSettled(w, t.stopCode, after)
	case t.InFlight == 0 && t.stopCode != effects.OK:
		t.Ended = true
		t.reportDone(w, t.stopCode, true, after)
	}
}

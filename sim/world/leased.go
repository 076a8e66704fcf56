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
	OnFlying.Report(&w.Panel, oracle.Nobody, Flying{t, pair})
	first := late + d.Heavy(w.Setting.Device)
	w.After(first, Delivery{Kind: KindStore, Node: plan.Nobody, A: t.ID, B: uint64(pair), C: 0})
	w.After(first+d.Again().Heavy(w.Setting.Device), Delivery{Kind: KindStore, Node: plan.Nobody, A: t.ID, B: uint64(pair),
		C: 1})
	if pair+1 < len(t.Pairs) {
		w.ForNode(n, d.Again().Again().Heavy(w.Setting.Device)+t.stalled(w, pair+1),
			Delivery{Kind: KindSubmit, A: t.ID, B: uint64(pair) + 1})
	}
}

// storeHalf is a store of the hardware, which no process can observe or stop.
func (t *Transfer) storeHalf(w *World, pair, half int) {
	w.Journal.Note(w.Now, KindStore, t.Remote.Node.ID, t.ID, uint64(pair), uint64(half))
	blocked := !t.Remote.Mapped()
	if !blocked {
		g := t.Remote.Grant(t.Grant)
		blocked = g == nil || g.Gone
		if !blocked && half == 1 && w.Struck(plan.FaultHalfPage, t.Name, uint64(pair)) {
			blocked = true
		}
		if !blocked {
			OnStored.Report(&w.Panel, oracle.Nobody, Stored{t, pair, half})
			t.moveHalf(w, pair, half)
		}
	}
	if half == 0 {
		return
	}
	t.Flying--
	OnFlown.Report(&w.Panel, oracle.Nobody, Flown{t, pair})
	if blocked {
		if t.stop == effects.OK {
			t.stop = effects.Faulted
		}
	} else {
		t.stored++
	}
	after := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), uint64(pair)).Heavy(w.Setting.Net / 2)
	switch {
	case t.stored == len(t.Pairs):
		t.Ended = true
		if t.Reported {
			t.settle(w, effects.OK, after)
		} else {
			t.report(w, effects.OK, true, after)
		}
	case t.Flying == 0 && t.Reported:
		t.Ended = true
		t.settle(w, t.stop, after)
	case t.Flying == 0 && t.stop != effects.OK:
		t.Ended = true
		t.report(w, t.stop, true, after)
	}
}

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// submitStore gives one page to hardware that stores by itself: the store happens
// later, whatever becomes of the process, unless the mapping is gone by then.
func (w *world) submitStore(t *transfer, pair int) {
	n := t.local.node
	if w.struck(plan.FaultDMA, t.name, uint64(pair)) {
		w.giveUp(t, effects.Faulted)
		return
	}
	d := draw.Hash(w.seed, draw.Store, uint64(t.name), uint64(pair))
	late := effects.Duration(0)
	if s, yes := w.strikes(plan.FaultLateStore, t.name, uint64(pair)); yes {
		late = s.Span(0, 3*effects.Second)
	}
	t.flying++
	w.oracles.onFlying(t, pair)
	first := late + d.Heavy(w.plan.Device)
	w.after(first, delivery{kind: kindStore, node: plan.Nobody, a: t.id, b: uint64(pair), c: 0})
	w.after(first+d.Again().Heavy(w.plan.Device), delivery{kind: kindStore, node: plan.Nobody, a: t.id, b: uint64(pair),
		c: 1})
	if pair+1 < len(t.pairs) {
		w.forNode(n, d.Again().Again().Heavy(w.plan.Device)+w.stalled(t, pair+1),
			delivery{kind: kindSubmit, a: t.id, b: uint64(pair) + 1})
	}
}

// storeHalf is one store of hardware. No process can see or stop it.
func (w *world) storeHalf(t *transfer, pair, half int) {
	w.journal.note(w.now, kindStore, t.remote.node.id, t.id, uint64(pair), uint64(half))
	blocked := !t.remote.mapped()
	if !blocked {
		g := t.remote.grant(t.grant)
		blocked = g == nil || g.gone
		if !blocked && half == 1 && w.struck(plan.FaultHalfPage, t.name, uint64(pair)) {
			blocked = true
		}
		if !blocked {
			w.oracles.onStore(t, pair, half)
			w.moveHalf(t, pair, half)
		}
	}
	if half == 0 {
		return
	}
	t.flying--
	w.oracles.onFlown(t, pair)
	if blocked {
		if t.stop == effects.OK {
			t.stop = effects.Faulted
		}
	} else {
		t.stored++
	}
	after := draw.Hash(w.seed, draw.Ack, uint64(t.name), uint64(pair)).Heavy(w.plan.Net / 2)
	switch {
	case t.stored == len(t.pairs):
		t.ended = true
		if t.reported {
			w.settle(t, effects.OK, after)
		} else {
			w.report(t, effects.OK, true, after)
		}
	case t.flying == 0 && t.reported:
		t.ended = true
		w.settle(t, t.stop, after)
	case t.flying == 0 && t.stop != effects.OK:
		t.ended = true
		w.report(t, t.stop, true, after)
	}
}

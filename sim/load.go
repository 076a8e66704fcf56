package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A read on a leased plane: hardware loads the owner's pages by itself, when it likes. Nobody
// looks at what they hold by then, and nothing but a mapping that is gone stops it. That what
// it brought may be believed, only the lease says.

// submitLoad gives one page to it.
func (w *world) submitLoad(t *transfer, pair int) {
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
	first := late + d.Heavy(w.plan.Device)
	w.after(first, delivery{kind: kindLoad, node: plan.Nobody, a: t.id, b: uint64(pair), c: 0})
	w.after(first+d.Again().Heavy(w.plan.Device), delivery{kind: kindLoad, node: plan.Nobody, a: t.id, b: uint64(pair),
		c: 1})
	if pair+1 < len(t.pairs) {
		w.forNode(t.local.node, d.Again().Again().Heavy(w.plan.Device)+w.stalled(t, pair+1),
			delivery{kind: kindSubmit, a: t.id, b: uint64(pair) + 1})
	}
}

// loadHalf is one load of hardware. No process can see or stop it.
func (w *world) loadHalf(t *transfer, pair, half int) {
	w.journal.note(w.now, kindLoad, t.local.node.id, t.id, uint64(pair), uint64(half))
	blocked := !t.remote.mapped() || t.under == nil || t.under.gone ||
		half == 1 && w.struck(plan.FaultHalfPage, t.name, uint64(pair))
	if !blocked && t.local.mapped() {
		w.oracles.onLoad(t, pair)
		t.fetchHalf(pair, half)
	}
	if half == 0 {
		return
	}
	t.flying--
	if !blocked {
		t.stored++
	} else if t.stop == effects.OK {
		t.stop = effects.Faulted
	}
	after := draw.Hash(w.seed, draw.Ack, uint64(t.name), uint64(pair)).Heavy(w.plan.Net / 2)
	switch {
	case t.flying > 0 || t.stored < len(t.pairs) && t.stop == effects.OK:
		return // More is under way, or will be.
	case t.stored == len(t.pairs):
		t.ended = true
		w.conclude(t, effects.OK, after)
	default:
		t.ended = true
		w.conclude(t, t.stop, after)
	}
}

// conclude says how a transfer ended, or that it did.
func (w *world) conclude(t *transfer, code effects.Code, after effects.Duration) {
	if t.reported {
		w.settle(t, code, after)
		return
	}
	w.report(t, code, true, after)
}

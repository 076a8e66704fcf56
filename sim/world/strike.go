package world

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// ruling is the plan's decision about a strike, which replaces the draw.
type ruling struct {
	happens bool
	asked   bool // the occasion of the strike came
}

// DrawStrike reports whether a fault happens now, and counts a fault that happens. Every fault that is drawn during the
// run passes through DrawStrike, so that a plan can record, suppress and force strikes. The returned draw decides
// further details of the fault. This draw is the same whether the strike was drawn or forced.
func (w *World) Strikes(f plan.Fault, about plan.Subject, nth uint64) (draw.Of, bool) {
	if w.Healed {
		return 0, false
	}
	if w.Setting.Rates[f] == 0 && len(w.rulings) == 0 {
		return 0, false
	}
	d := draw.Hash(w.Seed, draw.Strike+draw.Label(f), uint64(about), nth)
	yes := w.Setting.Rates[f] > 0 && d.Permille(w.Setting.Rates[f])
	if len(w.rulings) > 0 {
		if r := w.rulings[plan.Strike{Fault: f, About: about, Nth: nth}]; r != nil {
			yes, r.asked = r.happens, true
		}
	}
	if !yes {
		return 0, false
	}
	w.Result.Fault(f)
	if w.Journal.Rec != nil {
		w.Journal.Rec.Struck(f, about)
	}
	if w.Recording {
		w.Result.Strikes = append(w.Result.Strikes, plan.Strike{Fault: f, About: about, Nth: nth})
	}
	return d.Again(), true
}

// IsStruck is like DrawStrike, for faults that have no further details.
func (w *World) Struck(f plan.Fault, about plan.Subject, nth uint64) bool {
	_, yes := w.Strikes(f, about, nth)
	return yes
}

// rule records the strikes that a plan decides.
func (w *World) rule(p *plan.Plan) {
	if len(p.Strikes)+len(p.Spared) == 0 {
		return
	}
	w.rulings = make(map[plan.Strike]*ruling, len(p.Strikes)+len(p.Spared))
	for _, s := range p.Strikes {
		w.rulings[s] = &ruling{happens: true}
	}
	for _, s := range p.Spared {
		w.rulings[s] = &ruling{}
	}
}

// Unused returns the strikes of the plan that had no occasion, and the scheduled faults that found nothing to strike.
func (w *World) Unused() []string {
	var left []string
	planned := map[plan.Fault]uint64{}
	for i := range w.Source.Faults {
		planned[w.Source.Faults[i].Fault]++
	}
	for _, f := range plan.Faults() {
		if n := w.Result.Counted[f]; n < planned[f] {
			left = append(left, fmt.Sprintf("%s: %d of %d found nothing to strike", f, planned[f]-n, planned[f]))
		}
	}
	for _, list := range [][]plan.Strike{w.Source.Strikes, w.Source.Spared} {
		for _, s := range list {
			if !w.rulings[s].asked {
				left = append(left, s.String())
			}
		}
	}
	return left
}

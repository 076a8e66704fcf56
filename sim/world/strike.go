package world

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// strikeRuling is the plan's decision about a strike, which replaces the draw.
type strikeRuling struct {
	strikes  bool
	occurred bool // the occasion of the strike came
}

// DrawStrike reports whether a fault happens now, and counts a fault that happens. Every fault that is drawn during the
// run passes through DrawStrike, so that a plan can record, suppress and force strikes. The returned draw decides
// further details of the fault. This draw is the same whether the strike was drawn or forced.
func (w *World) DrawStrike(f plan.Fault, about plan.Subject, nth uint64) (draw.Value, bool) {
	if w.Healed {
		return 0, false
	}
	if w.Conditions.Rates[f] == 0 && len(w.rulings) == 0 {
		return 0, false
	}
	d := draw.Hash(w.Seed, draw.FirstStrike+draw.Label(f), uint64(about), nth)
	strikes := w.Conditions.Rates[f] > 0 && d.ChancePermille(w.Conditions.Rates[f])
	if len(w.rulings) > 0 {
		if r := w.rulings[plan.Strike{Fault: f, About: about, Nth: nth}]; r != nil {
			strikes, r.occurred = r.strikes, true
		}
	}
	if !strikes {
		return 0, false
	}
	w.Result.CountFault(f)
	if w.Journal.Observer != nil {
		w.Journal.Observer.RecordStrike(f, about)
	}
	if w.RecordsStrikes {
		w.Result.Strikes = append(w.Result.Strikes, plan.Strike{Fault: f, About: about, Nth: nth})
	}
	return d.Rehash(), true
}

// IsStruck is like DrawStrike, for faults that have no further details.
func (w *World) IsStruck(f plan.Fault, about plan.Subject, nth uint64) bool {
	_, strikes := w.DrawStrike(f, about, nth)
	return strikes
}

// setRulings records the strikes that a plan decides.
func (w *World) setRulings(p *plan.Plan) {
	if len(p.Strikes)+len(p.Spared) == 0 {
		return
	}
	w.rulings = make(map[plan.Strike]*strikeRuling, len(p.Strikes)+len(p.Spared))
	for _, s := range p.Strikes {
		w.rulings[s] = &strikeRuling{strikes: true}
	}
	for _, s := range p.Spared {
		w.rulings[s] = &strikeRuling{}
	}
}

// UnusedFaults returns the strikes of the plan that had no occasion, and the scheduled faults that found nothing to
// strike.
func (w *World) UnusedFaults() []string {
	var unused []string
	planned := map[plan.Fault]uint64{}
	for i := range w.SourcePlan.Faults {
		planned[w.SourcePlan.Faults[i].Fault]++
	}
	for _, f := range plan.Faults() {
		if n := w.Result.FaultCounts[f]; n < planned[f] {
			unused = append(unused, fmt.Sprintf("%s: %d of %d found nothing to strike", f, planned[f]-n, planned[f]))
		}
	}
	for _, list := range [][]plan.Strike{w.SourcePlan.Strikes, w.SourcePlan.Spared} {
		for _, s := range list {
			if !w.rulings[s].occurred {
				unused = append(unused, s.String())
			}
		}
	}
	return unused
}

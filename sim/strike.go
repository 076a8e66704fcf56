package sim

import (
	"fmt"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// ruling is what a plan says of one strike instead of the draw.
type ruling struct {
	happens bool
	asked   bool // its occasion came
}

// strikes says whether a fault happens now, and counts it if it does. Every fault that
// is drawn on the fly goes through here: this is what a plan can record, suppress and
// force. The draw that comes with it is for what the fault needs to know besides; it
// is the same however the strike came about.
func (w *world) strikes(f plan.Fault, about plan.Subject, nth uint64) (draw.Of, bool) {
	if w.healed {
		return 0, false
	}
	if w.plan.Rates[f] == 0 && len(w.rulings) == 0 {
		return 0, false
	}
	d := draw.Hash(w.seed, draw.Strike+draw.Label(f), uint64(about), nth)
	yes := w.plan.Rates[f] > 0 && d.Permille(w.plan.Rates[f])
	if len(w.rulings) > 0 {
		if r := w.rulings[plan.Strike{Fault: f, About: about, Nth: nth}]; r != nil {
			yes, r.asked = r.happens, true
		}
	}
	if !yes {
		return 0, false
	}
	w.result.fault(f)
	w.journal.rec.struck(f, about)
	if w.recording {
		w.result.Strikes = append(w.result.Strikes, plan.Strike{Fault: f, About: about, Nth: nth})
	}
	return d.Again(), true
}

// struck is strikes for a fault that needs to know nothing besides.
func (w *world) struck(f plan.Fault, about plan.Subject, nth uint64) bool {
	_, yes := w.strikes(f, about, nth)
	return yes
}

// rule takes the strikes that a plan decides.
func (w *world) rule(p *plan.Plan) {
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

// unused are the strikes of the plan for which there was no occasion, and the scheduled
// faults that found nothing to strike.
func (w *world) unused() []string {
	var left []string
	planned := map[plan.Fault]uint64{}
	for i := range w.source.Faults {
		planned[w.source.Faults[i].Fault]++
	}
	for _, f := range plan.Faults() {
		if n := w.result.faults[f]; n < planned[f] {
			left = append(left, fmt.Sprintf("%s: %d of %d found nothing to strike", f, planned[f]-n, planned[f]))
		}
	}
	for _, list := range [][]plan.Strike{w.source.Strikes, w.source.Spared} {
		for _, s := range list {
			if !w.rulings[s].asked {
				left = append(left, s.String())
			}
		}
	}
	return left
}

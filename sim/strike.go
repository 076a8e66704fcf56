package sim

// A strike is one fault that was drawn where it could happen: at the nth of its
// occasions that concern a subject. That name is all it depends on.
type strike struct {
	fault   Fault
	subject subject
	nth     uint64
}

// strikes says whether a fault happens now, and counts it if it does. Every fault that
// is drawn on the fly goes through here: this is what a plan can record, suppress and
// force. The draw that comes with it is for what the fault needs to know besides; it
// is the same however the strike came about.
func (w *world) strikes(f Fault, about subject, nth uint64) (draw, bool) {
	if w.healed || w.plan.Rates[f] == 0 {
		return 0, false
	}
	d := hash(w.seed, drawStrike+label(f), uint64(about), nth)
	if !d.permille(w.plan.Rates[f]) {
		return 0, false
	}
	w.result.fault(f)
	return d.again(), true
}

// struck is strikes for a fault that needs to know nothing besides.
func (w *world) struck(f Fault, about subject, nth uint64) bool {
	_, yes := w.strikes(f, about, nth)
	return yes
}

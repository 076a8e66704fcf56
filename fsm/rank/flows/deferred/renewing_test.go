package deferred

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// A round of renewals looks at each offer once, whoever's it is, and that is of the step's work: so peers whose
// renewals are due together have as many rounds a step as it has work for.
func TestRenewingIsWork(t *testing.T) {
	const offers = 64
	d := New(Settings{OffersMax: 2 * offers}, 3)
	for n := range offers {
		h := d.AddOffer(Offer{Class: 1 + n%2, Operation: uint64(n + 1), Grant: uint64(n + 1)}, nil)
		o := d.rows.Get(h)
		o.renews, o.ChunksLeft, o.Until = true, 1, 10
	}
	var work kernel.WorkBudget
	v := &env.Env{Now: 1, Work: &work}
	work.StartStep(offers / 16)
	first, _, _, more := d.CollectRenewals(v, 1, 20, 0, nil)
	if len(first) != 20 || more == 0 || !work.HasBudget() {
		t.Fatalf("%d grants, more from %d on, work left: %v", len(first), more, work.HasBudget())
	}
	rest, _, _, more := d.CollectRenewals(v, 1, 20, more, nil)
	if len(rest) != offers/2-20 || more != 0 {
		t.Fatalf("%d grants more, and from %d on", len(rest), more)
	}
	for _, grant := range append(first, rest...) {
		if grant%2 != 1 {
			t.Errorf("grant %d is another sender's", grant)
		}
	}
	if work.HasBudget() {
		t.Error("it was no work")
	}
}

package expand

import (
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// The internal limits of a rank have defaults that no small world reaches. The drawn values are so small that the same
// worlds stay below, reach or far exceed the limits. Each limit has a separate label, like the limits in drawBounds.

// drawTuning draws these limits.
func drawTuning(p *plan.Plan) {
	t := &p.Tuning
	drawSmall := func(label uint64, permille int, to *uint32, lo, hi int) {
		if d := draw.Hash(p.Seed, draw.Plan, 7, label); d.ChancePermille(permille) {
			*to = uint32(d.Rehash().Between(lo, hi))
		}
	}
	drawSmall(1, 300, &t.Attempts, 1, 5)
	drawSmall(3, 300, &t.Tells, 1, 4)
	drawSmall(4, 300, &t.Notifies, 1, 3)
	drawSmall(5, 400, &t.Renews, 1, 3)
	drawSmall(6, 300, &t.Leftovers, 1, 4)
	drawSmall(7, 400, &t.Plains, 1, 3)
	drawSmall(8, 300, &t.Breakers, 1, 2)
	drawSmall(10, 300, &t.Settle, 1, 4)
	if d := draw.Hash(p.Seed, draw.Plan, 7, 9); d.ChancePermille(400) {
		t.ProvenPeerBonus = d.Rehash().RoundedDuration(50*time.Millisecond, 4*time.Second)
	}
}

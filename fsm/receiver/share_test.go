package receiver

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// A peer that asks without end for pages that are not there leaves as many places to wait at as it has: who comes then waits, and is
// served as pages become free.
func TestNobodyWaitsAtMoreThanItLeaves(t *testing.T) {
	r := newRig(t, nil)
	greedy, honest := r.guest(1), r.guest(2)
	r.wantGranted(r.ask(greedy, numbered(0, pagesMax), nil), pagesMax)
	waiting := 0
	for i := range 2 * r.r.asks.Max() {
		if _, code, answered := r.granted(r.ask(greedy, numbered(16+i, 1), nil)); !answered {
			waiting++
		} else if code != effects.TooMany {
			t.Fatalf("refused as %v", code)
		}
	}
	if most := r.r.asks.Max() / 2; waiting != most {
		t.Fatalf("%d requests of one peer wait; want %d", waiting, most)
	}
	mine := r.ask(honest, keysOf("a"), nil)
	r.wantWaits(mine)
	r.advance(allocTimeout / 2)
	r.land(r.grants[0], r.grants[0].Pages)
	r.release(r.get(0, numbered(0, pagesMax)))
	r.wantGranted(mine, 1)
	r.advance(allocTimeout)
	if w := &r.r.waiting; w.total != 0 || w.of[1] != 0 {
		t.Errorf("%d places are taken when nobody waits", w.total)
	}
}

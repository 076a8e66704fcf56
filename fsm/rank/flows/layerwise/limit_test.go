package layerwise

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
)

// A refusal for lack of room narrows the batches of a run. Each batch that the peer takes doubles the limit again, up to
// what a message may name, so that a peer that was full for a moment does not slow the rest of a long prompt.
func TestOpeningLimitGrowsBack(t *testing.T) {
	const pagesMax = 8
	f, r, e := &Source{}, &run{openLimit: 1}, &flow.Env{Cfg: &flow.Config{}}
	e.Cfg.BatchMax = pagesMax
	for _, want := range []uint32{2, 4, pagesMax, pagesMax} {
		f.confirmBatch(e, r, &batch{openedChunks: r.openLimit}, &flow.CarriedResult{})
		if r.openLimit != want {
			t.Fatalf("the peer took a batch, and the limit is %d; want %d", r.openLimit, want)
		}
	}
	f.confirmBatch(e, r, &batch{}, &flow.CarriedResult{})
	if r.openLimit != pagesMax {
		t.Errorf("a batch that opens no chunk changed the limit to %d", r.openLimit)
	}
}

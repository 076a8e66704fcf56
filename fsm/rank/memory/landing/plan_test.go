package landing

import (
	"testing"

	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

// A plan says nothing of the batch before it. Otherwise, once a ready chunk could not be promised to some batch, each
// waiting request would be planned again whenever a page is freed.
func TestPlansAreTheirBatchsAlone(t *testing.T) {
	s := store.New(store.Config{Settings: store.Settings{ClaimsMax: 1, ClaimTTL: 1}, Entries: 4, Pages: 4, Classes: 2})
	l := &Landings{cfg: Config{PageBytes: 1}}
	l.planBuf.Unpromised = true
	p := l.PlanKeys(&env.Env{}, &s, 1, [][]byte{[]byte("m@1@0@ab@bfloat16")}, nil, 1, true)
	if p.Unpromised || p.PagesNeeded() != 1 {
		t.Errorf("a chunk that nobody has needs %d pages, and counts as ready without a promise: %v", p.PagesNeeded(), p.Unpromised)
	}
}

package demo

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
	"github.com/kvferry/kvferry/protocol"
)

func TestKeysFollowPrefixes(t *testing.T) {
	a, lastA := promptKeys(trace.Request{InputTokens: 1100, Blocks: []uint64{7, 8, 9}}, 256)
	b, lastB := promptKeys(trace.Request{InputTokens: 1300, Blocks: []uint64{7, 8, 9}}, 256)
	if len(a) != 5 || lastA != 1100-4*256 || len(b) != 6 || lastB != 1300-5*256 {
		t.Fatalf("%d keys, last of %d tokens; %d keys, last of %d tokens", len(a), lastA, len(b), lastB)
	}
	// Equal IDs stand for equal blocks after equal prefixes: full chunks have equal keys, partial chunks do not.
	if !slices.Equal(a[:4], b[:4]) {
		t.Error("an equal prefix has other keys")
	}
	if a[4] == b[4] {
		t.Error("a partial chunk has the key of a full one")
	}
	seen := map[string]bool{}
	for _, key := range slices.Concat(a[:4], a[4:], b[4:]) {
		if err := protocol.CheckKey([]byte(key), 512); err != nil {
			t.Error(err)
		}
		if seen[key] {
			t.Errorf("key %s names two chunks", key)
		}
		seen[key] = true
	}
	if full, last := promptKeys(trace.Request{InputTokens: 512, Blocks: []uint64{1}}, 256); len(full) != 2 || last != 0 {
		t.Errorf("512 tokens: %d keys, last %d; want 2 full chunks", len(full), last)
	}
}

func TestBatches(t *testing.T) {
	j := job{keys: make([]string, 130), lastTokens: 9}
	all := j.keyBatches(64)
	if len(all) != 3 || len(all[2]) != 2 {
		t.Fatalf("%d batches, last of %d", len(all), len(all[len(all)-1]))
	}
	if j.batchLastTokens(1, 3) != 0 || j.batchLastTokens(2, 3) != 9 {
		t.Error("only the last batch ends with the partial chunk")
	}
}

// Admission is first come, first served: a small request does not overtake a large request that waits.
func TestAdmissionIsFair(t *testing.T) {
	a := newAdmission(10)
	a.acquireChunks(8)
	var order []int
	large, small := make(chan struct{}), make(chan struct{})
	go func() { a.acquireChunks(10); order = append(order, 10); a.releaseChunks(10); close(large) }()
	for waiting := false; !waiting; {
		a.mu.Lock()
		waiting = a.nextTurn == 2 // The large request has its turn.
		a.mu.Unlock()
	}
	go func() { a.acquireChunks(1); order = append(order, 1); a.releaseChunks(1); close(small) }()
	a.releaseChunks(8)
	<-large
	<-small
	if !slices.Equal(order, []int{10, 1}) {
		t.Errorf("entered in order %v", order)
	}
}

func TestPinned(t *testing.T) {
	if got := listPinned("n", &agent.Stats{PagesTotal: 8, PagesFree: 5, Entries: 3}); len(got) != 0 {
		t.Errorf("pages of ready chunks count as pinned: %v", got)
	}
	if got := listPinned("n", &agent.Stats{PagesTotal: 8, PagesFree: 2, Entries: 2, ChunkPages: 3}); len(got) != 0 {
		t.Errorf("pages of the layers of ready chunks count as pinned: %v", got)
	}
	for _, s := range []agent.Stats{{PagesGranted: 1}, {PagesQuarantined: 1}, {PagesLeased: 1}, {Puts: 1}, {Gets: 1},
		{Grants: 1}, {PendingRequests: 1}, {Prefills: 1}, {Bundles: 1},
		{Reserves: 1}, {Claims: 1}, {Fills: 1}, {Offers: 1}, {Fetches: 1}, {Staged: 1}, {Brings: 1},
		{ArenaTotal: 2, ArenaFree: 1}, {Pinned: 1}, {PagesTotal: 8, PagesFree: 7}} {
		if got := listPinned("n", &s); len(got) != 1 {
			t.Errorf("%+v: %v, want one thing", s, got)
		}
	}
}

func TestShapeFitsTheMachine(t *testing.T) {
	if got := shapeFor(1<<40, LayersMax, false).layers; got != LayersMax {
		t.Errorf("a large machine gets %d layers, want %d", got, LayersMax)
	}
	if got := shapeFor(1<<40, 2, false).layers; got != 2 {
		t.Errorf("a model of at most 2 layers has %d layers", got)
	}
	if got := shapeFor(0, LayersMax, false).layers; got != layersMin {
		t.Errorf("a machine without memory gets %d layers, want %d", got, layersMin)
	}
	for gib := 4; gib < 64; gib++ {
		if s := shapeFor(gib<<30, LayersMax, false); s.layers > layersMin && s.poolBytes() > gib<<30/8 {
			t.Errorf("%d GiB: pools of %d bytes", gib, s.poolBytes())
		}
		if s := shapeFor(gib<<30, LayersMax, true); s.layers > layersMin && s.ringBytes() > gib<<30/8 {
			t.Errorf("%d GiB: pools of a ring of %d bytes", gib, s.ringBytes())
		}
	}
}

func TestReportOfNothingIsNotOK(t *testing.T) {
	p := &player{options: &Options{}, tally: newTally()}
	if p.finishReport(1, nil, nil, nil).OK {
		t.Error("a replay that verified nothing is ok")
	}
	p.tally.hits.Store(1)
	if !p.finishReport(1, nil, nil, nil).OK {
		t.Error("a clean replay is not ok")
	}
	for _, r := range []*Report{p.finishReport(1, []string{"x"}, nil, nil), p.finishReport(1, nil, []string{"x"}, nil)} {
		if r.OK {
			t.Errorf("ok although %+v", r)
		}
	}
	p.options.Recall = true
	if p.finishReport(1, nil, nil, nil).OK {
		t.Error("a replay that was to recall and did not is ok")
	}
	p.options.Recall = false
	p.options.Mode, p.tally.stagedMax = PullDelay, stagingPages
	if r := p.finishReport(1, nil, nil, nil); !r.OK || r.StagingPages != stagingPages {
		t.Errorf("a fetching decode that kept to its staging: %+v", r)
	}
	p.tally.stagedMax++
	if p.finishReport(1, nil, nil, nil).OK {
		t.Error("a decode that held more than two batches is ok")
	}
	p.tally.stagedMax = 0
	p.tally.r.BytesWrong = 1
	if p.finishReport(1, nil, nil, nil).OK {
		t.Error("a wrong byte is ok")
	}
}

func TestModesByName(t *testing.T) {
	for name, want := range map[string][]Mode{"push": {Push}, "pull": {Pull}, "pull-delay": {PullDelay},
		"pull-delay+offload": {PullDelayOffload}, "all": {Push, Pull, PullDelay, PullDelayOffload, Layerwise},
		"layerwise": {Layerwise}, "p2p": sharingModes, "p2p-push": {P2PPush}, "p2p-pull": {P2PPull},
		"p2p-pull+arena": {P2PArena}, "p2p-delay": {P2PDelay}} {
		got, share, err := ParseModes(name)
		if err != nil || !slices.Equal(got, want) || share != strings.HasPrefix(name, "p2p") {
			t.Errorf("%s: %v, %t, %v", name, got, share, err)
		}
	}
	if _, _, err := ParseModes("p2p-carry"); err == nil || !strings.Contains(err.Error(),
		"push, pull, pull-delay, pull-delay+offload, layerwise, p2p-push, p2p-pull, p2p-pull+arena, p2p-delay, push-reg, "+
			"all (all push and pull modes), or p2p (all sharing modes)") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestSummaryIsOKIfAllAre(t *testing.T) {
	var s Summary[*Report]
	for _, step := range []struct{ adds, want bool }{{true, true}, {false, false}, {true, false}} {
		if s.Add(&Report{Outcome: Outcome{OK: step.adds}}); s.OK != step.want {
			t.Errorf("after a report that is ok=%t: ok=%t", step.adds, s.OK)
		}
	}
}

// After a process was killed, its notification may still be in flight, so the wait continues, but for a shorter time.
func TestAwaitNotification(t *testing.T) {
	closed, open := make(chan struct{}), make(chan struct{})
	close(closed)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name       string
		ctx        context.Context
		told, gone chan struct{}
		want       string
	}{
		{"notified", t.Context(), closed, open, ""}, {"notified and ended", t.Context(), closed, closed, ""},
		{"ended", t.Context(), open, closed, "proxy: not notified"}, {"interrupted", cancelled, open, open, "interrupted"},
	} {
		if got := awaitNotification(c.ctx, c.told, c.gone); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

package traces_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/trace"
	"github.com/kvferry/kvferry/cmd/kvferry/traces"
)

// The trace has the properties that the package comment states, on which the demo relies.
func TestChatHasTheShapeItPromises(t *testing.T) {
	requests, err := trace.Read("chat.jsonl", strings.NewReader(traces.Chat), trace.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(requests); n < 50 || n > 70 {
		t.Errorf("got %d requests, want about 60", n)
	}
	if last := requests[len(requests)-1].Arrival; last < 2*time.Minute || last > 3*time.Minute {
		t.Errorf("the last request arrives at %v, want within the third minute", last)
	}
	seen := map[uint64]bool{}
	total, shared, returning, longest := 0, 0, 0, 0
	for _, r := range requests {
		prefix := 0
		for _, b := range r.Blocks {
			if seen[b] {
				prefix++
			}
			seen[b] = true
		}
		total += len(r.Blocks)
		shared += prefix
		if prefix > 3 { // The prefix is longer than the longest system prompt, so it has an earlier turn.
			returning++
		}
		longest = max(longest, r.InputTokens)
	}
	t.Logf("%d requests, %d blocks, %d shared, %d returning, longest prompt %d", len(requests), total, shared, returning,
		longest)
	if shared*4 < total {
		t.Errorf("%d of %d blocks are shared, want a quarter at least", shared, total)
	}
	if returning < 10 || longest < 4000 {
		t.Errorf("%d requests continue a chat and the longest prompt has %d tokens, want 10 and 4000", returning, longest)
	}
}

package sim

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
)

// TestShards: the summaries of the shards of a campaign, with any number of workers, add up to the summary of the whole
// campaign, also after a conversion to JSON.
func TestShards(t *testing.T) {
	o := CampaignOptions{FirstSeed: 100, Seeds: 31, Workers: 2, Profile: "crash"}
	whole, err := Campaign(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	sum := newSummary(o.Profile)
	o.Shards = 3
	for o.Shard = range o.Shards {
		part, err := Campaign(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if part.Seeds < 10 || part.Seeds > 11 {
			t.Errorf("shard %d of 3 ran %d of 31 seeds", o.Shard, part.Seeds)
		}
		text, err := json.Marshal(&part)
		if err != nil {
			t.Fatal(err)
		}
		var back Summary
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(part, back) {
			t.Errorf("shard %d reads back otherwise than it was written", o.Shard)
		}
		sum.Merge(&back)
	}
	if !reflect.DeepEqual(whole, sum) {
		t.Errorf("the shards add up to\n%+v\ninstead of\n%+v", sum, whole)
	}
}

// TestCampaignEnds: a campaign without a number of seeds ends with its context, and returns the summary of the seeds
// run so far.
func TestCampaignEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex // No worker begins a seed between the end of the fifth seed and the end of the context.
	done := 0
	s, err := Campaign(ctx, CampaignOptions{Workers: 2, Profile: "calm", Progress: func(*Result) {
		mu.Lock()
		defer mu.Unlock()
		if done++; done == 5 {
			cancel()
		}
	}})
	if err != nil || s.Seeds < 5 || s.Seeds > 6 {
		t.Errorf("%d seeds, %v; want 5, and what the other worker had begun", s.Seeds, err)
	}
}

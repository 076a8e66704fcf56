package rank

import (
	"math"

	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// emptied returns empty rooms for a rank with this number of fairness classes, and reuses the memory of the rooms of a
// rank that has ended. seed is a secret of the rank.
func emptied(of *flow.Rooms, c *Config, pageBytes uint64, classes int, seed uint64) flow.Rooms {
	return flow.Rooms{
		Store: of.Store.Emptied(store.Config{
			Seed: seed, Entries: int(c.entriesMax()), Locations: int(c.LocationsMax), Pages: int(c.chunkPages()),
			Claims: int(c.ClaimsMax), Classes: classes, TTL: c.ClaimTTL, Retention: c.Retention, Journal: int(c.Journal),
		}),
		Pending: of.Pending.Emptied(allocqueue.Config{
			Places: int(c.WaitersMax), Bytes: int(min(c.WaitingBytes, math.MaxInt)), BypassMax: c.BypassMax,
		}, classes),
		Landings: of.Landings.Emptied(landing.Config{
			Leased: c.Leased, GrantsMax: int(c.GrantsMax), ClaimTTL: c.ClaimTTL, PageBytes: pageBytes,
			TokenBytes: c.Layout.TokenBytes(), KeyBytes: c.Wire.KeyBytes, Bundles: bundle.Config{
				Layers: c.Layers, Max: c.bundlesMax(), ByPages: c.ByPages(), TTL: c.BundleTTL, Most: c.BundleMost,
			},
		}, classes),
		Gets:     of.Gets.Emptied(int(c.GetsMax), c.GetWaitMax),
		Deferred: of.Deferred.Emptied(deferred.Config{OffersMax: int(c.OffersMax), LeadMin: c.LeadMin}, classes),
		Fetches: of.Fetches.Emptied(staging.Config{
			PageBytes: pageBytes, Depth: c.StagingPages / 2, StagingMax: c.StagingPages, ItemsMax: c.BatchMax,
			SourcesMax: c.BatchMax, FetchesMax: c.FetchesMax,
		}, c.FetchTimeout),
		Abandons: of.Abandons.Emptied(c.RequestsMax),
		Ended:    of.Ended.Emptied(outcomes.Config{Max: c.endedMax(), TTL: 2 * c.ClaimTTL}, classes),
		Hashes:   of.Hashes,
	}
}

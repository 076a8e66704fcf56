package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
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
			Settings: c.Store, Seed: seed, Entries: int(c.entriesMax()), Pages: int(c.chunkPages()), Classes: classes,
			Journal: int(c.Journal),
		}),
		Pending: of.Pending.Emptied(c.Pending, classes),
		Landings: of.Landings.Emptied(landing.Config{
			Leased: c.Leased, GrantsMax: int(c.GrantsMax), ClaimTTL: c.ClaimTTL, PageBytes: pageBytes,
			TokenBytes: c.Layout.TokenBytes(), KeyBytes: c.Wire.KeyBytes, Bundles: bundle.Config{Settings: c.Bundling, Max: c.bundlesMax()},
		}, classes),
		Gets:     of.Gets.Emptied(int(c.GetsMax), c.GetWaitMax),
		Deferred: of.Deferred.Emptied(c.Deferred, classes),
		Fetches: of.Fetches.Emptied(staging.Config{
			Settings: c.Pipeline, PageBytes: pageBytes, Depth: c.StagingPages / 2, ItemsMax: c.BatchMax,
			SourcesMax: c.BatchMax,
		}, c.FetchTimeout),
		Abandons: of.Abandons.Emptied(c.RequestsMax),
		Ended:    of.Ended.Emptied(outcomes.Config{Max: c.endedMax(), TTL: 2 * c.ClaimTTL}, classes),
		Hashes:   of.Hashes,
	}
}

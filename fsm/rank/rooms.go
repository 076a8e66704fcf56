package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// recycleRooms returns empty rooms for a rank with this number of fairness classes, and reuses the memory of the rooms
// of a rank that has ended. seed is a secret of the rank.
func recycleRooms(old *flow.Rooms, c *Config, pageBytes uint64, classes int, seed uint64) flow.Rooms {
	return flow.Rooms{
		Store: old.Store.Recycle(store.Config{
			Settings: c.Store, Seed: seed, Entries: int(c.entriesMax()), Pages: int(c.chunkPages()), Classes: classes,
			Journal: int(c.Journal),
		}),
		Pending: old.Pending.Recycle(c.Pending, classes),
		Landings: old.Landings.Recycle(landing.Config{
			Leased: c.Leased, Verifies: c.Verifies, GrantsMax: int(c.GrantsMax), ClaimTTL: c.ClaimTTL, PageBytes: pageBytes,
			TokenBytes: c.Layout.TokenBytes(), KeyBytes: c.Wire.KeyBytes, Bundles: bundle.Config{Settings: c.Bundling, Max: c.bundlesMax()},
		}, classes),
		Gets:     old.Gets.Recycle(int(c.GetsMax), c.GetWaitMax),
		Deferred: old.Deferred.Recycle(c.Deferred, classes),
		Fetches: old.Fetches.Recycle(staging.Config{
			Settings: c.Pipeline, PageBytes: pageBytes, Depth: c.StagingPages / 2, ItemsMax: c.BatchMax,
			SourcesMax: c.BatchMax,
		}, c.FetchTimeout),
		Abandons: old.Abandons.Recycle(c.RequestsMax),
		Outcomes: old.Outcomes.Recycle(outcomes.Config{Max: c.outcomesMax(), TTL: 2 * c.ClaimTTL}, classes),
		Hashes:   old.Hashes,
	}
}

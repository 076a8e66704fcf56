package rank

import (
	"math"

	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/store"
)

// newRooms returns the rooms of targets, empty, for so many classes. seed is a secret of the rank.
func newRooms(c *Config, pageBytes uint64, classes int, seed uint64) flow.Rooms {
	return flow.Rooms{
		Store: store.New(store.Config{
			Seed: seed, Entries: int(c.entriesMax()), Places: int(c.PlacesMax), Pages: int(c.Pages),
			Claims: int(c.ClaimsMax), Classes: classes, TTL: c.ClaimTTL, Retention: c.Retention,
		}),
		Pending: pending.New(pending.Config{
			Places: int(c.WaitersMax), Bytes: int(min(c.WaitingBytes, math.MaxInt)), BypassMax: c.OvertakesMax,
		}, classes),
		Landings: land.New(land.Config{
			Leased: c.Leased, GrantsMax: int(c.GrantsMax), ClaimTTL: c.ClaimTTL, PageBytes: pageBytes,
			TokenBytes: c.Layout.TokenBytes(),
		}, classes),
		Gets:     engine.NewGets(int(c.GetsMax), c.GetWaitMax),
		Deferred: deferred.New(deferred.Config{OffersMax: int(c.OffersMax), LeadMin: c.LeadMin}, classes),
		Fetches: deferred.NewFetches(pipeline.Config{
			PageBytes: pageBytes, Depth: c.StagingPages / 2, StagingMax: c.StagingPages, ItemsMax: c.BatchMax,
			SourcesMax: c.BatchMax, FetchesMax: c.FetchesMax,
		}, c.FetchTimeout),
		Abandons: flow.NewAbandons(c.RequestsMax),
	}
}

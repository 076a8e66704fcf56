package metrics

import "github.com/kvferry/kvferry/fsm/rank"

// A Reading is the present value of a time series: a metric, by its name without the prefix "kvferry_", with the values
// of its labels. Labels after the last are empty.
type Reading struct {
	Metric string
	Labels [3]string
	Value  uint64
}

// The names of the gauges.
const (
	PagesCapacity = "pages_capacity"          // by pool
	Pages         = "pages"                   // by pool and state
	PagesLeased   = "pages_leased_high_water" // without labels
	PagesPinned   = "pages_pinned"            // without labels
	TableRows     = "table_rows"              // by table
)

// The pools of a rank, as they are named in metrics.
const (
	PoolEngine = "engine"
	PoolArena  = "arena"
	PoolDevice = "device"
)

// AppendGauges appends what the tables of a rank have now. The counts of granted, quarantined and leased pages are those
// of all pools, and stand at the first. A rank without an arena or a device pool has no readings of it.
func AppendGauges(all []Reading, s *rank.Stats) []Reading {
	all = append(all,
		gauge(PagesCapacity, s.PagesTotal, PoolEngine),
		gauge(Pages, s.PagesFree, PoolEngine, "free"),
		gauge(Pages, s.PagesEvictable, PoolEngine, "evictable"),
		gauge(Pages, s.PagesGranted, PoolEngine, "granted"),
		gauge(Pages, s.PagesQuarantined, PoolEngine, "quarantined"),
		gauge(Pages, s.PagesLeased, PoolEngine, "leased"),
		gauge(Pages, s.PagesPromised, PoolEngine, "promised"),
		gauge(Pages, s.Staged, PoolEngine, "staged"),
	)
	if s.ArenaTotal > 0 {
		all = append(all, gauge(PagesCapacity, s.ArenaTotal, PoolArena), gauge(Pages, s.ArenaFree, PoolArena, "free"))
	}
	if s.DeviceTotal > 0 {
		all = append(all, gauge(PagesCapacity, s.DeviceTotal, PoolDevice), gauge(Pages, s.DeviceFree, PoolDevice, "free"),
			gauge(Pages, s.DeviceEvictable, PoolDevice, "evictable"))
	}
	return append(all,
		gauge(PagesLeased, s.PagesLeasedMax),
		gauge(PagesPinned, s.Pinned),
		gauge(TableRows, s.Puts, "puts"),
		gauge(TableRows, s.Reserves, "reserves"),
		gauge(TableRows, s.Requests, "requests"),
		gauge(TableRows, s.Tombstones, "tombstones"),
		gauge(TableRows, s.Gets, "gets"),
		gauge(TableRows, s.PendingRequests, "pending_requests"),
		gauge(TableRows, s.Grants, "grants"),
		gauge(TableRows, s.Entries, "entries"),
		gauge(TableRows, s.Claims, "claims"),
		gauge(TableRows, s.Fills, "fills"),
		gauge(TableRows, s.Offers, "offers"),
		gauge(TableRows, s.Locations, "locations"),
		gauge(TableRows, s.Fetches, "fetches"),
		gauge(TableRows, s.OutboundPeers, "outbound_peers"),
		gauge(TableRows, s.InboundPeers, "inbound_peers"),
		gauge(TableRows, s.Outstanding, "outstanding"),
		gauge(TableRows, s.Deadlines, "deadlines"),
		gauge(TableRows, s.Brings, "brings"),
		gauge(TableRows, s.Receptions, "receptions"),
		gauge(TableRows, s.LeasedBatches, "leased_batches"),
		gauge(TableRows, s.Registrations, "registrations"),
		gauge(TableRows, s.Layers, "layers"),
		gauge(TableRows, s.Bundles, "bundles"),
		gauge(TableRows, s.Operations, "operations"),
		gauge(TableRows, s.Retries, "retries"),
	)
}

// gauge returns a reading. No count of a rank is negative.
func gauge(metric string, value int, labels ...string) Reading {
	r := Reading{Metric: metric, Value: uint64(value)}
	copy(r.Labels[:], labels)
	return r
}

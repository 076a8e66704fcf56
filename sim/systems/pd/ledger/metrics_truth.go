package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/sim/world"
)

// The tables of this file say of each number of package metrics what metricOracle compares it with, or why it compares
// it with nothing. TestMetricTruths fails if a number has no entry.

// factTruths says which counts of a fact are compared.
//
//kvferry:table
var factTruths = [effects.FactCount]struct {
	times, items bool
	// onlyIf restricts the comparison to some nodes or codes; nil: none.
	onlyIf func(or *metricOracle, n *world.Node, state *metricState, code effects.Code) bool
	why    string // why something is not compared
}{
	0:                       {why: "no fact"},
	effects.FactGranted:     {times: true, items: true},
	effects.FactPutEnded:    {times: true, items: true},
	effects.FactRecallEnded: {times: true, items: true},
	effects.FactWritten:     {times: true, items: true},
	effects.FactEndTold:     {times: true, items: true},
	effects.FactReceived:    {times: true, why: "items: the machine counts the blocks of all its parts"},
	effects.FactLayersEnded: {times: true, why: "items: S9 judges which chunks are missing"},
	effects.FactProxyTold: {times: true, items: true,
		onlyIf: func(_ *metricOracle, _ *world.Node, _ *metricState, code effects.Code) bool {
			return code == effects.OK
		},
		why: "failures: the machine decides when it gives a notification up, which L5 judges"},
	effects.FactBrought: {times: true, onlyIf: func(_ *metricOracle, _ *world.Node, state *metricState, code effects.Code) bool {
		return !state.searches && code != effects.NotFound && code != effects.TooMany
	}, why: "items: only the machine knows which chunks were there before; searches: each of their parts counts"},
	effects.FactReclaimed: {times: true, items: true,
		onlyIf: func(or *metricOracle, _ *world.Node, state *metricState, _ effects.Code) bool {
			return !or.w.Conditions.Leased && !state.holdsLanded
		},
		why: "leased planes: the machine decides when a grant has ended, which S24 and L2 judge; pages that wait for checksums: S33"},

	effects.FactLinkUp:       {why: "S22 judges handshakes, and L11 uses the fact as the beginning of a link"},
	effects.FactLinkDown:     {why: "an attempt ends by the machine's decision; S7 and L4 judge what follows"},
	effects.FactAllocRefused: {why: "one of several messages may get the same refusal; S18 and L9 judge each"},
	effects.FactReady:        {why: "S1 and S9 judge each"},
	effects.FactFillLost:     {why: "a chunk may become readable by another fill; L9 judges the gets that wait for it"},
	effects.FactLapsed:       {why: "S20 judges each"},
	effects.FactMalformed:    {why: "bytes may be changed so that they mean the same; L8 judges that no unchanged message is refused"},
	effects.FactHelloRefused: {why: "S22 and S28 judge each"},
	effects.FactGivenBack:    {why: "what the peer says; S3 judges what follows"},
	effects.FactEvicted:      {why: "the order of evictions is judged under S20"},
	effects.FactRecalled:     {why: "only the first of several equal queries counts; S10 judges the replies"},
	effects.FactShared:       {why: "only the first of several equal queries counts; S10 judges the replies"},
	effects.FactDirectory:    {why: "a fact of directories, not of ranks"},
	effects.FactRegistered:   {why: "S22 and S28 judge the answers"},
	effects.FactLayersSent:   {why: "the machine decides which layers it sends together; L11 judges each batch"},
	effects.FactGrantTraced:  {why: "no request of the simulator is traced"},
}

// gaugeTruths says what each gauge is compared with: an empty text if boundsOf knows it, or else why it does not.
//
//kvferry:table
var gaugeTruths = map[[3]string]string{
	{metrics.PagesCapacity, metrics.PoolEngine}:        "",
	{metrics.PagesCapacity, metrics.PoolArena}:         "",
	{metrics.PagesCapacity, metrics.PoolDevice}:        "",
	{metrics.Pages, metrics.PoolEngine, "granted"}:     "",
	{metrics.Pages, metrics.PoolEngine, "quarantined"}: "",
	{metrics.Pages, metrics.PoolEngine, "leased"}:      "",
	{metrics.Pages, metrics.PoolEngine, "free"}:        "S5 judges the number of free pages at each step, and at rest to the page",
	{metrics.Pages, metrics.PoolArena, "free"}:         "S5, as of the engine's pool",
	{metrics.Pages, metrics.PoolDevice, "free"}:        "S5, as of the engine's pool",
	{metrics.Pages, metrics.PoolEngine, "evictable"}:   "the order and the need of evictions are judged under S20",
	{metrics.Pages, metrics.PoolDevice, "evictable"}:   "the order and the need of evictions are judged under S20",
	{metrics.Pages, metrics.PoolEngine, "promised"}:    "promises are free pages; S6 judges their number",
	{metrics.Pages, metrics.PoolEngine, "staged"}:      "S15 judges the number of staging pages",
	{metrics.PagesLeased}:                              "",
	{metrics.PagesPinned}:                              "pins follow from the machine's loans; L2 and S17 judge that they end",
	{metrics.TableRows, "puts"}:                        "",
	{metrics.TableRows, "reserves"}:                    "",
	{metrics.TableRows, "gets"}:                        "",
	{metrics.TableRows, "grants"}:                      "",
	{metrics.TableRows, "fills"}:                       "",
	{metrics.TableRows, "fetches"}:                     "",
	{metrics.TableRows, "requests"}:                    "S17, records of requests",
	{metrics.TableRows, "tombstones"}:                  "S17, records of requests",
	{metrics.TableRows, "pending_requests"}:            "L7 judges which requests wait",
	{metrics.TableRows, "operations"}:                  "S17, records of operations",
	{metrics.TableRows, "retries"}:                     "S17, records of operations",
	{metrics.TableRows, "deadlines"}:                   "S17, deadlines at rest",
	{metrics.TableRows, "brings"}:                      "S17, numbers of Brings and recalls",
	{metrics.TableRows, "entries"}:                     "internal: one for each key that anything refers to",
	{metrics.TableRows, "claims"}:                      "S20 judges for which requests a chunk is kept",
	{metrics.TableRows, "offers"}:                      "internal: kept after their end for repeated messages",
	{metrics.TableRows, "locations"}:                   "internal: kept after their end for repeated messages",
	{metrics.TableRows, "outbound_peers"}:              "internal: kept as long as there is room",
	{metrics.TableRows, "inbound_peers"}:               "internal: kept as long as there is room",
	{metrics.TableRows, "outstanding"}:                 "internal: S17 judges that it is empty at rest",
	{metrics.TableRows, "receptions"}:                  "S17 judges the rows of registered blocks at rest",
	{metrics.TableRows, "leased_batches"}:              "S17 judges the rows of registered blocks at rest",
	{metrics.TableRows, "registrations"}:               "S17 judges the rows of registered blocks at rest",
	{metrics.TableRows, "layers"}:                      "S17 judges the runs of layers",
	{metrics.TableRows, "bundles"}:                     "S17 judges the number of bundles",
}

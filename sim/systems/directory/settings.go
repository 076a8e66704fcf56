package directory

import (
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A plan changes a limit or a time of its directories by an item with the name of the setting. Plans that are older than
// a setting have no such item and keep the usual value, and a plan shrinks by losing items. A directory that is given
// the item as a command replies that it knows no commands.
type settingBody struct{}

func (*settingBody) IsCommand() {}

// A setting is a limit or a time that plans may change.
type setting struct {
	apply       func(c *serve.Config, x plan.Item)
	least, most uint32        // range of the numbers
	rare        bool          // the other oracles can judge less of such plans
	from, until time.Duration // range of the spans; 0: the setting has a number
}

// directorySettings lists the settings of the directories of System.
var directorySettings = map[string]setting{
	"disconnected after": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.Disconnected = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: time.Second,
	},
	"silence after": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.Silence = effects.Duration(x.Span) },
		from:  600 * time.Millisecond, until: 2 * time.Second,
	},
	"sync timeout": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.SyncTimeout = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: time.Second,
	},
	"fade after": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.Fade = effects.Duration(x.Span) },
		from:  100 * time.Millisecond, until: time.Second,
	},
	"heartbeaters only": {
		apply: func(c *serve.Config, x plan.Item) {
			c.Directory.HeartbeatersOnly, c.Directory.Disconnected = true, effects.Duration(x.Span)
			// A late registration of an earlier process makes a worker known that never becomes silent.
			c.Directory.Yield = min(c.Directory.Yield, effects.Second)
		},
		from: 300 * time.Millisecond, until: 2 * time.Second,
	},
	"yield after": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.Yield = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: 2 * time.Second,
	},
	"most ends": {apply: func(c *serve.Config, x plan.Item) { c.Directory.EndsPerStep = int(x.Number) }, least: 1, most: 3},
	"most lookup hashes": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.HashesPerLookup = int(x.Number) }, least: 1, most: 5,
	},
	"most lookup peers": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.PeersPerLookup = int(x.Number) }, least: 1, most: 3,
	},
	"most text":    {apply: func(c *serve.Config, x plan.Item) { c.Directory.TextBytes = int(x.Number) }, least: 48, most: 80},
	"most batches": {apply: func(c *serve.Config, x plan.Item) { c.Directory.BatchesPerSync = int(x.Number) }, least: 100, most: 120},
	"most hashes":  {apply: func(c *serve.Config, x plan.Item) { c.Directory.HashesPerBatch = int(x.Number) }, least: 20, most: 25},
	"most locations": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.LocationsPerWorker = int(x.Number) }, least: 1, most: 2,
	},
	"most workers of an instance": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.WorkersPerInstance = int(x.Number) }, least: 2, most: 6,
	},
	"most workers of a connection": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.WorkersPerConnection = int(x.Number) }, least: 1, most: 6,
	},
	"most holders of a chunk": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.HoldersPerChunk = int(x.Number) }, least: 1, most: 2, rare: true,
	},
	"most holders": {
		apply: func(c *serve.Config, x plan.Item) { c.Directory.Holders = int(x.Number) }, least: 24, most: 40,
	},
}

// logSettings lists the settings of the directories of Replicas.
var logSettings = map[string]setting{
	"log bytes":    {apply: func(c *serve.Config, x plan.Item) { c.Log.LogBytes = int(x.Number) }, least: 4000, most: 40_000},
	"log entries":  {apply: func(c *serve.Config, x plan.Item) { c.Log.KeepEntries = x.Number }, least: 40, most: 400},
	"frame bytes":  {apply: func(c *serve.Config, x plan.Item) { c.Log.FrameBytes = int(x.Number) }, least: 200, most: 400},
	"most authors": {apply: func(c *serve.Config, x plan.Item) { c.Log.Authors = int(x.Number) }, least: 2, most: 3},
	"poll interval": {
		apply: func(c *serve.Config, x plan.Item) { c.Log.PollInterval = effects.Duration(x.Span) },
		from:  20 * time.Millisecond, until: 300 * time.Millisecond,
	},
	"log timeout": {
		apply: func(c *serve.Config, x plan.Item) { c.Log.RequestTimeout = effects.Duration(x.Span) },
		from:  150 * time.Millisecond, until: 600 * time.Millisecond,
	},
	"want delay": { // Half of such plans double the delay once, the others twice.
		apply: func(c *serve.Config, x plan.Item) {
			c.Log.WantMin = effects.Duration(x.Span)
			c.Log.WantMax = 2 * c.Log.WantMin << (x.Span / time.Millisecond % 2)
		},
		from: 20 * time.Millisecond, until: 300 * time.Millisecond,
	},
	"read entries": {apply: func(c *serve.Config, x plan.Item) { c.Log.ReadEntries = x.Number }, least: 100, most: 300},
	"reconnect delay": {
		apply: func(c *serve.Config, x plan.Item) { c.Log.ReconnectDelay = effects.Duration(x.Span) },
		from:  10 * time.Millisecond, until: 200 * time.Millisecond,
	},
}

// settingCommands adds the commands of settings to those of a system.
func settingCommands(settings map[string]setting,
	commands map[string]func(plan.Item) effects.CommandBody) map[string]func(plan.Item) effects.CommandBody {
	for name := range settings {
		commands[name] = func(plan.Item) effects.CommandBody { return &settingBody{} }
	}
	return commands
}

// drawSettings draws the settings of a plan: none in a third of the plans, and each in a third of the others, or in two
// thirds where a crowd may meet the limits.
func drawSettings(d custom.Draws, p *plan.Plan, settings map[string]setting) {
	if p.Profile == "calm" || d.NumberBelow("settings", 0, 3) == 0 {
		return
	}
	for i, name := range slices.Sorted(maps.Keys(settings)) {
		x := settings[name]
		pick := d.NumberBelow("setting", uint64(i), 3)
		if pick == 0 || pick == 1 && !mayFlood(p) || x.rare && d.NumberBelow("rare setting", uint64(i), 4) != 0 {
			continue
		}
		item := plan.Item{Do: name, Node: 0}
		if x.until > 0 {
			item.Span = d.Duration("span of a setting", uint64(i), x.from, x.until)
		} else {
			item.Number = x.least + uint32(d.NumberBelow("number of a setting", uint64(i), uint64(x.most-x.least+1)))
		}
		p.Items = append(p.Items, item)
	}
}

// applySettings changes a configuration as the items of a plan say.
func applySettings(p *plan.Plan, settings map[string]setting, c *serve.Config) {
	for i := range p.Items {
		if x, ok := settings[p.Items[i].Do]; ok {
			item := p.Items[i] // Plans shrink to smaller spans and numbers.
			item.Span, item.Number = max(item.Span, x.from), max(item.Number, x.least)
			x.apply(c, item)
		}
	}
}

// planOf returns the plan of the run that an oracle judges.
func planOf(c *oracle.Call) *plan.Plan { return c.SystemRun().(interface{ Plan() *plan.Plan }).Plan() }

// tables reports how full the tables of a machine are.
type tables interface {
	VisitTables(visit func(name string, n, most int))
	VisitKeptTables(visit func(name string, n, most int))
}

// tablesOf returns the tables of the directory that a call is about.
func tablesOf(c *oracle.Call) tables {
	return c.SystemRun().(interface{ MachineOf(n oracle.Node) any }).MachineOf(c.Node()).(tables)
}

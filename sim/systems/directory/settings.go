package directory

import (
	"maps"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// A plan changes a limit or a time of its directories by an item with the name of the setting. Plans that are older than
// a setting have no such item and keep the usual value, and a plan shrinks by losing items. A directory that is given
// the item as a command replies that it knows no commands.
type settingBody struct{}

func (*settingBody) IsCommand() {}

// A setting is a limit or a time that plans may change.
type setting struct {
	apply       func(d *core.Config, x plan.Item)
	least, most uint32        // range of the numbers
	from, until time.Duration // range of the spans; 0: the setting has a number
}

// directorySettings lists the settings of the directories of System.
var directorySettings = map[string]setting{
	"disconnected after": {
		apply: func(d *core.Config, x plan.Item) { d.Disconnected = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: time.Second,
	},
	"silence after": {
		apply: func(d *core.Config, x plan.Item) { d.Silence = effects.Duration(x.Span) },
		from:  600 * time.Millisecond, until: 2 * time.Second,
	},
	"sync timeout": {
		apply: func(d *core.Config, x plan.Item) { d.SyncTimeout = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: time.Second,
	},
	"fade after": {
		apply: func(d *core.Config, x plan.Item) { d.Fade = effects.Duration(x.Span) },
		from:  100 * time.Millisecond, until: time.Second,
	},
	"heartbeaters only": {
		apply: func(d *core.Config, x plan.Item) {
			d.HeartbeatersOnly, d.Disconnected = true, effects.Duration(x.Span)
		},
		from: 300 * time.Millisecond, until: 2 * time.Second,
	},
	"yield after": {
		apply: func(d *core.Config, x plan.Item) { d.Yield = effects.Duration(x.Span) },
		from:  300 * time.Millisecond, until: 2 * time.Second,
	},
	"most ends": {apply: func(d *core.Config, x plan.Item) { d.EndsPerStep = int(x.Number) }, least: 1, most: 3},
	"most lookup hashes": {
		apply: func(d *core.Config, x plan.Item) { d.HashesPerLookup = int(x.Number) }, least: 1, most: 5,
	},
	"most lookup peers": {
		apply: func(d *core.Config, x plan.Item) { d.PeersPerLookup = int(x.Number) }, least: 1, most: 3,
	},
	"most text":    {apply: func(d *core.Config, x plan.Item) { d.TextBytes = int(x.Number) }, least: 48, most: 80},
	"most batches": {apply: func(d *core.Config, x plan.Item) { d.BatchesPerSync = int(x.Number) }, least: 100, most: 120},
	"most hashes":  {apply: func(d *core.Config, x plan.Item) { d.HashesPerBatch = int(x.Number) }, least: 20, most: 25},
	"most locations": {
		apply: func(d *core.Config, x plan.Item) { d.LocationsPerWorker = int(x.Number) }, least: 1, most: 2,
	},
	"most workers of an instance": {
		apply: func(d *core.Config, x plan.Item) { d.WorkersPerInstance = int(x.Number) }, least: 2, most: 6,
	},
	"most workers of a connection": {
		apply: func(d *core.Config, x plan.Item) { d.WorkersPerConnection = int(x.Number) }, least: 1, most: 6,
	},
	"most holders": {
		apply: func(d *core.Config, x plan.Item) { d.Holders = int(x.Number) }, least: 40, most: 48,
	},
}

// settingNames lists the names of the settings in order.
var settingNames = slices.Sorted(maps.Keys(directorySettings))

// settingCommands adds the commands of the settings to those of a system.
func settingCommands(commands map[string]func(plan.Item) effects.CommandBody) map[string]func(plan.Item) effects.CommandBody {
	for _, name := range settingNames {
		commands[name] = func(plan.Item) effects.CommandBody { return &settingBody{} }
	}
	return commands
}

// drawSettings draws the settings of a plan: none in half of the plans, and each in a quarter of the others.
func drawSettings(d custom.Draws, p *plan.Plan) {
	if p.Profile == "calm" || d.NumberBelow("settings", 0, 2) == 0 {
		return
	}
	for i, name := range settingNames {
		x := directorySettings[name]
		if d.NumberBelow("setting", uint64(i), 4) != 0 {
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
func applySettings(p *plan.Plan, d *core.Config) {
	for i := range p.Items {
		if x, ok := directorySettings[p.Items[i].Do]; ok {
			item := p.Items[i] // Plans shrink to smaller spans and numbers.
			item.Span, item.Number = max(item.Span, x.from), max(item.Number, x.least)
			x.apply(d, item)
		}
	}
}

// planOf returns the plan of the run that an oracle judges.
func planOf(c *oracle.Call) *plan.Plan { return pd.ClusterOf(c).SourcePlan }

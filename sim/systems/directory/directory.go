// Package directory is a directory and workers in a simulated world: who reports what they have and ask who has what,
// what seeds draw of it, and who judges the answers.
package directory

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/own"
)

const (
	systemName    = "directory"
	directoryName = "directory"
	second        = "second"
)

// directories are the names of those that a plan has: each is a replica by itself.
func directories(p *plan.Plan) []string {
	if draw.Hash(p.Seed, draw.Plan, 8, 3).Permille(500) {
		return []string{directoryName, second}
	}
	return []string{directoryName}
}

// workers are by the names of their nodes. Those of one instance are its ranks. c is a node that takes each directory
// for a controller of LMCache's, p a worker of LMCache's, which knows one directory.
var workers = []hand{
	{"a0", who{instance: "a"}}, {"a1", who{instance: "a", rank: 1}}, {"b0", who{instance: "b"}},
	{"b1", who{instance: "b", rank: 1}}, {"c0", who{instance: "c", plain: true}},
	{plainName, who{instance: "p", plain: true}},
}

const plainName = "p0"

// A hand is a worker by the name of its node.
type hand struct {
	name string
	who  who
}

// rests is how long after the last fault a directory knows what is so: what is down starts within 1.5 s, what was
// delayed comes within 1 s, a connection is opened again within 0.3 s, what is not known by then is found by two
// heartbeats, and a sync that lost its end is given up and done anew, one after the other if there is but one place.
const rests = 5 * time.Second

// System is a directory with workers.
var System = own.System{
	Name:  systemName,
	Nodes: nodes,
	Draw:  draws,
	Do: map[string]func(plan.Item) effects.CommandBody{
		"admit": admits, "evict": evicts, "lookup": looks, "settled": settles, "leave": leaves,
		crowdItem: crowds,
	},
	Oracles:  []oracle.Oracle{named, turns, toldSo, converges, honest, answered, parted, awake},
	Facts:    []string{"settled"},
	Legible:  legible,
	Patience: rests + 2*time.Second,
	DriftPPM: 20_000,
}

func nodes(p *plan.Plan) (all []own.Process) {
	for _, name := range directories(p) {
		all = append(all, own.Process{
			Name: name, Serves: lineChannels[:],
			New: func(b own.Boot) (effects.Machine, error) { return serve.New(setting(b, name)) },
		})
	}
	for _, x := range workers {
		begin := func(b own.Boot) (effects.Machine, error) {
			return newNode(x.who, b, limits(b.Plan), directories(b.Plan))
		}
		if x.name == plainName {
			begin = func(b own.Boot) (effects.Machine, error) { return newWorker(x.who, b), nil }
		}
		all = append(all, own.Process{Name: x.name, New: begin})
	}
	if isCrowded(p) {
		all = append(all, own.Process{Name: crowdName, New: func(b own.Boot) (effects.Machine, error) {
			return newCrowd(b), nil
		}})
	}
	return all
}

// limits are what a worker goes by.
func limits(p *plan.Plan) registrar.Config {
	c := registrar.Default()
	c.RequestTimeout, c.BackoffMin, c.BackoffMax = patience, 20*effects.Millisecond, 300*effects.Millisecond
	c.HeartbeatEvery, c.ReportDelay, c.ReportOperations, c.LeaveTimeout = beatEvery, 10*effects.Millisecond, 3, effects.Second
	c.SyncEvery, c.SyncEveryMax, c.SyncPause = 100*effects.Millisecond, 400*effects.Millisecond, 10*effects.Millisecond
	c.SyncBatchSlots, c.SyncPoll, c.SyncPollsMax, c.SyncResendMax = 2, 100*effects.Millisecond, 4, 4
	if isLong(p) {
		c.SyncBatchSlots, c.SyncPause = 1, effects.Millisecond
	}
	c.LookupsMax, c.Window, c.CacheSize = 4, 2, 3
	c.LookupTimeout, c.CacheTime = patience, 100*effects.Millisecond
	return c
}

// journal is how many changes the store of a worker remembers: often less than it takes.
func journal(p *plan.Plan) int { return 1 << draw.Hash(p.Seed, draw.Plan, 8, 4).Between(1, 7) }

// setting is how a plan's directory is configured: its bounds are small where they end work, and ample where they end
// knowledge.
func setting(b own.Boot, name string) serve.Config {
	at := func(n uint64) draw.Of { return draw.Hash(b.Plan.Seed, draw.Plan, 8, n) }
	c := serve.Config{Directory: core.Default(), Wire: protocol.DefaultLimits()}
	c.Heartbeat = protocol.Endpoint(b.Addr(name, effects.ChannelHeartbeat)).String()
	d := &c.Directory
	d.Seed = b.Seed
	d.Instances, d.Workers, d.WorkersPerInstance, d.WorkersPerConnection, d.Holders = 8, 16, 4, 4, 64
	d.Silence, d.SyncTimeout, d.Fade, d.EndsPerStep = silence, stuck, fades, 16
	d.Syncs, d.SweepRows = at(1).Between(1, 4), 1+at(2).Between(0, 40)
	if floods(b.Plan) { // Half of each table has room for all workers but those of the crowd.
		d.Syncs, d.Chunks = max(2, d.Syncs), 600
	}
	return c
}

// How long a directory waits for word of a worker, and for a sync to go on; and how long it believes what was told
// before a gap.
const (
	silence = 1200 * effects.Millisecond
	stuck   = 500 * effects.Millisecond
	fades   = 300 * effects.Millisecond
)

// draws draws what workers do.
func draws(d own.Draws, p *plan.Plan) {
	drawWork(d, p, workers, rests, len(directories(p)))
	if isCrowded(p) && p.Profile != "calm" {
		p.Items = append(p.Items, d.Items(crowdItem, 1, 1, crowdName)...)
		// Who registers first has its place. So the directory begins anew, and all come at once.
		p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultCrash, At: p.FaultsEnd / 2, Node: 0})
	}
}

// drawWork draws what workers do, and that each asks about each prompt after all has come to rest. The first of them is
// that node.
func drawWork(d own.Draws, p *plan.Plan, workers []hand, rests time.Duration, first int) {
	var names []string
	for _, x := range workers {
		names = append(names, x.name)
	}
	p.Items = append(d.Items("admit", 10, 60, names...), d.Items("evict", 0, 30, names...)...)
	p.Items = append(p.Items, d.Items("lookup", 5, 60, names...)...)
	p.Items = append(p.Items, d.Items("leave", 0, 2, names[:len(names)-1]...)...)
	if isLong(p) {
		for n := range workers[:2] {
			p.Items = append(p.Items, plan.Item{At: time.Millisecond, Do: "admit", Node: plan.Node(first + n), Number: long})
		}
	}
	if d.Below("feed", 0, 2) == 0 {
		p.Rates[plan.FaultDoneLost] = 10 + int(d.Below("feed", 1, 290))
	}
	for i := range workers {
		for prompt := range uint32(prompts) {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + rests + time.Duration(1+prompt)*100*time.Millisecond, Do: "settled", Node: plan.Node(first + i),
				Number: prompt,
			})
		}
		if isLong(p) {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + rests + 50*time.Millisecond, Do: "settled", Node: plan.Node(first + i), Number: long,
			})
		}
	}
}

// legible says whether bytes are a message of workers or directories.
func legible(b []byte) bool {
	tag, err := protocol.PeekControllerTag(b, nil)
	if err != nil {
		return false
	}
	m := protocol.NewMessage(tag)
	return m != nil && m.Decode(b, nil) == nil
}

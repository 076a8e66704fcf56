// Package directory simulates cache directories and the workers that report to the directories. The package contains
// the workers, a process that floods a directory, the log that directories share, the random choices of a seed, and the
// oracles that check the replies to lookups.
//
// There are three systems: System (one or two independent directories), Replicas (directories that share a log, so that
// each directory learns of all reports) and Fleet (Replicas with many workers).
//
// Example: an engine gives worker a0 the command to add two chunks. The worker reports the operations to the directory.
// Later, worker b0 looks the chunks up. The oracles compare the reply with the ledger of what the directory was told:
// the reply must name instance a with two chunks, unless a report was lost and no full sync has repaired the loss.
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
	"github.com/kvferry/kvferry/sim/systems/custom"
)

const (
	systemName    = "directory"
	directoryName = "directory"
	secondName    = "second"
)

// directoryNames returns the names of the directories of a plan. Each directory is independent.
func directoryNames(p *plan.Plan) []string {
	if draw.Hash(p.Seed, draw.Plan, 8, 3).ChancePermille(500) {
		return []string{directoryName, secondName}
	}
	return []string{directoryName}
}

// workers lists the workers of System and Replicas. Workers of the same instance are ranks of that instance. c0 is a
// kvferry node that takes each directory for an LMCache controller; p0 is an LMCache worker, which knows one directory.
var workers = []workerNode{
	{"a0", workerID{instance: "a"}}, {"a1", workerID{instance: "a", rank: 1}}, {"b0", workerID{instance: "b"}},
	{"b1", workerID{instance: "b", rank: 1}}, {"c0", workerID{instance: "c", lacksExtensions: true}},
	{vanillaName, workerID{instance: "p", lacksExtensions: true}},
}

const vanillaName = "p0"

// workerNode is a worker together with the name of its node.
type workerNode struct {
	node string
	id   workerID
}

// convergeTime is the time after the last fault by which a directory knows the truth: processes restart within 1.5 s,
// delayed messages arrive within 1 s, and connections are opened again within 0.3 s. After that, two heartbeats find
// the workers that the directory does not know, and a sync without an end is given up and repeated. A directory with a
// single slot runs the syncs in sequence.
const convergeTime = 5 * time.Second

// System is one or two independent directories with workers.
var System = custom.System{
	Name:      systemName,
	Processes: listProcesses,
	Draw:      drawPlan,
	Commands: settingCommands(directorySettings, map[string]func(plan.Item) effects.CommandBody{
		"admit": newAdmit, "evict": newEvict, "lookup": newLookup, "settled": newFinalLookup, "leave": newLeave,
		impostorItem: newImpersonation, identitiesItem: func(plan.Item) effects.CommandBody { return &settingBody{} },
		crowdItem: newFlood, silenceItem: newSilence, unrulyItem: func(plan.Item) effects.CommandBody { return &settingBody{} },
	}),
	Oracles: []oracle.Oracle{holdersOracle, orderOracle, reportsOracle, convergenceOracle,
		honestyOracle, repliesOracle, departureOracle, silenceOracle, clientOracle, modelOracle},
	FactNames:      []string{"settled"},
	IsWellFormed:   isLegible,
	CommandTimeout: convergeTime + 2*time.Second,
	DriftMaxPPM:    20_000,
}

// movesWorkers reports whether the workers of a plan run on two hosts in turn, so that directories count them against two
// addresses.
func movesWorkers(p *plan.Plan) bool { return draw.Hash(p.Seed, draw.Plan, 8, 100).ChancePermille(500) }

func listProcesses(p *plan.Plan) (all []custom.Process) {
	for _, name := range directoryNames(p) {
		all = append(all, custom.Process{
			Name: name, Channels: connChannels[:],
			New: func(b custom.Boot) (effects.Machine, error) { return serve.New(directoryConfig(b, name)) },
		})
	}
	for _, x := range workers {
		begin := func(b custom.Boot) (effects.Machine, error) {
			return newNode(x.id, b, registrarConfig(b.Plan, x.id), directoryNames(b.Plan))
		}
		if x.node == vanillaName {
			begin = func(b custom.Boot) (effects.Machine, error) { return newVanillaWorker(x.id, b), nil }
		}
		all = append(all, custom.Process{Name: x.node, New: begin, Moves: movesWorkers(p), Proves: identityOf(x.id)})
	}
	if mayImpersonate(p) {
		all = append(all, impostorProcess(directoryNames(p), len(directoryNames(p))))
	}
	if mayFlood(p) {
		all = append(all, custom.Process{Name: crowdName, New: func(b custom.Boot) (effects.Machine, error) {
			return newCrowd(b), nil
		}})
	}
	return all
}

// registrarConfig returns the configuration of a worker's registrar. Half of the plans have the usual values; the other
// half draws each setting, so that it often decides. The limits stay such that the directories converge in time.
func registrarConfig(p *plan.Plan, w workerID) registrar.Config {
	c := registrar.Default()
	c.RequestTimeout, c.BackoffMin, c.BackoffMax = requestTimeout, 20*effects.Millisecond, 300*effects.Millisecond
	c.HeartbeatEvery, c.ReportDelay, c.ReportOperations, c.LeaveTimeout = heartbeatInterval, 10*effects.Millisecond, 3, effects.Second
	c.SyncEvery, c.SyncEveryMax, c.SyncPause = 100*effects.Millisecond, 400*effects.Millisecond, 10*effects.Millisecond
	c.SyncBatchSlots, c.SyncPoll, c.SyncPollsMax, c.SyncResendMax = 2, 100*effects.Millisecond, 4, 4
	c.LookupsMax, c.Window, c.CacheSize = 4, 2, 3
	c.LookupTimeout, c.CacheTime = requestTimeout, 100*effects.Millisecond
	if at := draw.Hash(p.Seed, draw.Plan, 8, 60); !draw.IsFixed(p.Seed) && at.ChancePermille(500) {
		drawTimes(p, &c)
		if w.lacksExtensions {
			// A directory states no silence to such a worker, and a lost heartbeat may cost a full sync.
			c.HeartbeatEvery, c.HeartbeatsLost = min(c.HeartbeatEvery, heartbeatInterval), max(c.HeartbeatsLost, 3)
			c.RequestTimeout = requestTimeout
		}
		drawLookupLimits(p, &c)
	}
	if hasLongPrompt(p) {
		c.SyncBatchSlots, c.SyncPause = 1, effects.Millisecond
	}
	if tellsMuch(p) {
		c.HeartbeatEvery = draw.Hash(p.Seed, draw.Plan, 8, 78).Duration(30*effects.Millisecond, 80*effects.Millisecond)
	}
	return c
}

// drawTimes draws the settings of reports, heartbeats and full syncs.
func drawTimes(p *plan.Plan, c *registrar.Config) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 8, 60+n) }
	const ms = effects.Millisecond
	c.RequestTimeout, c.BackoffMin = at(1).Duration(100*ms, 400*ms), at(2).Duration(5*ms, 40*ms)
	c.BackoffMax = c.BackoffMin + at(3).Duration(0, 300*ms)
	c.HeartbeatEvery, c.HeartbeatsLost = at(4).Duration(150*ms, 350*ms), uint32(at(5).Between(1, 4))
	if p.System == systemName && at(6).ChancePermille(400) {
		c.HeartbeatEvery = 5 * effects.Second // The silence that the directory states requires more.
	}
	c.ReportDelay, c.ReportOperations = at(7).Duration(0, 40*ms), at(8).Between(1, 8)
	c.LeaveTimeout = at(9).Duration(100*ms, effects.Second)
	c.SyncEvery = at(10).Duration(50*ms, 200*ms)
	c.SyncEveryMax = c.SyncEvery + at(11).Duration(0, 300*ms)
	c.SyncPause, c.SyncBatchSlots = at(12).Duration(0, 15*ms), at(13).Between(1, 6)
	c.SyncPoll, c.SyncPollsMax, c.SyncResendMax = at(14).Duration(40*ms, 150*ms), uint32(at(15).Between(1, 4)), at(16).Between(1, 4)
}

// drawLookupLimits draws the settings of lookups.
func drawLookupLimits(p *plan.Plan, c *registrar.Config) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 8, 80+n) }
	c.LookupsMax, c.Window = at(0).Between(1, 4), uint16(at(1).Between(1, 3))
	if c.TriesMax = 1; at(10).ChancePermille(300) { // Otherwise a lookup may ask fewer directories than there are.
		c.TriesMax = at(2).Between(1, 3)
	} else if p.System == replicasName {
		c.TriesMax = at(2).Between(1, 2)
	}
	c.LookupTimeout = at(3).Duration(100*effects.Millisecond, 300*effects.Millisecond)
	c.CacheTime, c.CacheSize = at(4).Duration(20*effects.Millisecond, 500*effects.Millisecond), at(5).Between(0, 3)
	if at(6).ChancePermille(150) {
		c.CacheTime = 0
	}
	if at(7).ChancePermille(300) {
		c.PrefixMax = at(8).Between(1, chunksPerPrompt)
		if hasLongPrompt(p) {
			c.PrefixMax = at(8).Between(chunksPerPrompt, longPromptChunks)
		}
	}
	if at(9).ChancePermille(400) {
		c.HoldersMax = 1
	}
}

// journalLength returns the number of changes that the store of a worker records, which is often too small.
func journalLength(p *plan.Plan) int { return 1 << draw.Hash(p.Seed, draw.Plan, 8, 4).Between(1, 7) }

// directoryConfig returns the configuration of a directory. Limits that stop work are small; limits that make the
// directory forget are large.
func directoryConfig(b custom.Boot, name string) serve.Config {
	c := serve.Config{Directory: limitsOf(b.Plan), Wire: protocol.DefaultLimits()}
	c.Heartbeat = protocol.Endpoint(b.Addr(name, effects.ChannelHeartbeat)).String()
	c.Directory.Seed = b.Seed
	return c
}

// limitsOf returns the limits and times of the directories of a plan.
func limitsOf(p *plan.Plan) core.Config {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 8, n) }
	d := core.Default()
	d.Instances, d.Workers, d.WorkersPerInstance, d.WorkersPerConnection, d.Holders = 8, 16, 4, 4, 64
	d.Silence, d.SyncTimeout, d.Fade, d.EndsPerStep = silenceTimeout, syncTimeout, fadeTime, 16
	d.Yield = 2 * effects.Second // A process that two late messages of its predecessors make look old is believed again before the end.
	d.Syncs, d.SweepRows = at(1).Between(1, 4), 1+at(2).Between(0, 40)
	if p.System == "fleet" {
		d.PeersPerLookup = 2 * fleetSize
	}
	if p.System == systemName && movesWorkers(p) { // A slot that counts against the wrong address shows at once.
		d.Syncs = 1
	}
	if isFlooded(p) { // Half of each table has room for all workers except for the crowd's.
		d.Syncs, d.Chunks = max(2, d.Syncs), floodedChunks
	}
	c := serve.Config{Directory: d}
	applySettings(p, directorySettings, &c)
	return c.Directory
}

// floodedChunks is the limit of chunks of a directory that is flooded.
const floodedChunks = 600

// How long a directory waits for a message from a worker, and for the next batch of a sync; and how long it keeps
// records from before a gap in the reports.
const (
	silenceTimeout = 1200 * effects.Millisecond
	syncTimeout    = 500 * effects.Millisecond
	fadeTime       = 300 * effects.Millisecond
)

// drawPlan draws the workload and the crowd.
func drawPlan(d custom.Draws, p *plan.Plan) {
	drawSettings(d, p, directorySettings)
	drawWork(d, p, workers, convergeTime, len(directoryNames(p)))
	if mayFlood(p) && p.Profile != "calm" {
		p.Items = append(p.Items, d.Items(crowdItem, 1, 1, crowdName)...)
		p.Items = append(p.Items, plan.Item{
			At: p.FaultsEnd + convergeTime + time.Second, Do: silenceItem, Node: p.Items[len(p.Items)-1].Node,
		})
		if d.NumberBelow("unruly", 0, 4) > 0 {
			p.Items = append(p.Items, plan.Item{Do: unrulyItem, Node: p.Items[len(p.Items)-1].Node})
		}
		// The first workers to register get the places. The directory restarts, so that all workers compete at once.
		p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultCrash, At: p.FaultsEnd / 2, Node: 0})
	}
}

// drawWork draws the commands of the workers, and a final lookup of each prompt by each worker once the directories
// must know the truth. The last argument is the node of the first worker.
func drawWork(d custom.Draws, p *plan.Plan, workers []workerNode, converge time.Duration, firstNode int) {
	var names []string
	for _, x := range workers {
		names = append(names, x.node)
	}
	p.Items = append(p.Items, d.Items("admit", 10, 60, names...)...)
	p.Items = append(p.Items, d.Items("evict", 0, 30, names...)...)
	p.Items = append(p.Items, d.Items("lookup", 5, 60, names...)...)
	p.Items = append(p.Items, d.Items("leave", 0, 2, names[:len(names)-1]...)...)
	if hasLongPrompt(p) {
		for n := range workers[:2] {
			p.Items = append(p.Items, plan.Item{
				At: time.Millisecond, Do: "admit", Node: plan.Node(firstNode + n), Number: longPrompt + longPromptLength(p, n),
			})
		}
		for _, x := range d.Items("long lookup", 2, 6, names...) {
			x.Do, x.Number = "lookup", longPrompt
			p.Items = append(p.Items, x)
		}
	}
	if d.NumberBelow("feed", 0, 2) == 0 {
		p.Rates[plan.FaultDoneLost] = 10 + int(d.NumberBelow("feed", 1, 290))
		if d.NumberBelow("feed", 2, 4) == 0 {
			p.Rates[plan.FaultDoneLost] = 300 + int(d.NumberBelow("feed", 3, 400))
		}
	}
	if p.Profile != "calm" && p.System != fleetName {
		drawSlowDirectory(d, p, names)
		drawMoves(d, p, len(workers), firstNode)
	}
	if mayImpersonate(p) && p.Profile != "calm" {
		drawImpostor(d, p, plan.Node(firstNode+len(workers)))
	}
	for i := range workers {
		for prompt := range uint32(promptCount) {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + converge + time.Duration(1+prompt)*100*time.Millisecond, Do: "settled", Node: plan.Node(firstNode + i),
				Number: prompt,
			})
		}
		if hasLongPrompt(p) {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + converge + 50*time.Millisecond, Do: "settled", Node: plan.Node(firstNode + i), Number: longPrompt,
			})
		}
	}
}

// drawSlowDirectory makes workers leave, and ask, while a directory does not answer: from their first registration on, or
// later.
func drawSlowDirectory(d custom.Draws, p *plan.Plan, names []string) {
	const what = "slow directory"
	if d.NumberBelow(what, 0, 3) != 0 {
		return
	}
	at := d.Duration(what, 1, 0, p.FaultsEnd/2)
	if d.NumberBelow(what, 3, 2) == 0 { // While the workers register.
		at = d.Duration(what, 4, 0, 4*p.Delays.Message)
	}
	span := min(d.Duration(what, 2, 100*time.Millisecond, 1500*time.Millisecond), p.FaultsEnd-at)
	p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultPause, At: at, For: span, Node: 0})
	for _, verb := range []string{"leave", "lookup"} {
		most := map[string]int{"leave": 2, "lookup": 5}[verb]
		for i, x := range d.Items("slow "+verb, 1, most, names[:len(names)-1]...) {
			x.Do, x.At = verb, at+d.Duration("slow "+verb+" at", uint64(i), 0, span)
			p.Items = append(p.Items, x)
		}
	}
}

// drawMoves draws crashes of workers that move: they end when they are about to send something, such as the begin of a sync
// for which they were asked, and come back at their other host while their directory still keeps a slot for them.
func drawMoves(d custom.Draws, p *plan.Plan, workerCount, firstNode int) {
	if !movesWorkers(p) {
		return
	}
	const what = "crash before a sync"
	for i := range 1 + d.NumberBelow(what, 0, 8) {
		x := plan.ScheduledFault{
			Fault: plan.FaultCrash, At: d.Duration(what, 1+i, 0, p.FaultsEnd), Nth: d.NumberBelow(what, 10+i, 4),
			Node: plan.Node(firstNode + int(d.NumberBelow(what, 20+i, uint64(workerCount)))),
			When: plan.Moment{IsSet: true, Effect: effects.KindSend}.String(),
		}
		if d.NumberBelow(what, 30+i, 2) == 0 { // When it has just registered.
			x.At = 0
		}
		p.Faults = append(p.Faults, x)
	}
}

// isLegible reports whether bytes are a valid message of a worker or a directory.
func isLegible(b []byte) bool {
	tag, err := protocol.PeekControllerTag(b, nil)
	if err != nil {
		return false
	}
	m := protocol.NewMessage(tag)
	return m != nil && m.Decode(b, nil) == nil
}

package p2p

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Directories is the system of directory nodes. The ranks report chunks to the directories and ask for the locations of
// chunks.
var Directories = custom.System{
	Name:           systemName,
	Processes:      directoryProcesses,
	Draw:           drawFindJobs,
	Oracles:        []oracle.Oracle{convergenceOracle, findOracle, staleReplyOracle, locateOracle},
	IsWellFormed:   isLegible,
	CommandTimeout: convergeTime,
	RankProfile:    "p2p",
}

const systemName = "directories"

// convergeTime is the time after the last fault and after the last change of a store by which the directories know the
// change.
const convergeTime = 5 * time.Second

var (
	directoryNames    = []string{"directory", "second"}
	directoryChannels = []effects.Channel{effects.ChannelDirectory, effects.ChannelFeed, effects.ChannelHeartbeat}
)

// findWord marks a share job whose receiver does not know which node has the chunks and therefore asks the directories.
var findWord = plan.RegisterFlag(plan.FlowFlag{Name: "find", CheckJob: func(p *plan.Plan, j *plan.Job) string {
	if !j.Flags[flowWord] || p.System == "" {
		return "find needs share and a system with directories"
	}
	return ""
}})

// directoriesOf returns the names of the directories of a plan, or nil if the nodes know no directory.
func directoriesOf(p *plan.Plan) []string {
	if p.System != plan.PD+"+"+systemName {
		return nil
	}
	return directoryNames[:draw.Hash(p.Seed, draw.Plan, 10, 0).Between(1, len(directoryNames))]
}

// directoryProcesses returns the directory processes. A plan may use the first process only.
func directoryProcesses(p *plan.Plan) (all []custom.Process) {
	for _, name := range directoryNames {
		all = append(all, custom.Process{
			Name: name, Channels: directoryChannels,
			New: func(b custom.Boot) (effects.Machine, error) { return serve.New(directoryConfig(b, name)) },
		})
	}
	return all
}

// directoryConfig returns the configuration of a directory with short timeouts, so that silent workers are often
// dropped and stuck syncs are often given up.
func directoryConfig(b custom.Boot, name string) serve.Config {
	c := serve.Config{Directory: core.Default(), Wire: protocol.DefaultLimits()}
	c.Heartbeat = protocol.Endpoint(b.Addr(name, effects.ChannelHeartbeat)).String()
	d := &c.Directory
	d.Seed, d.Instances, d.Workers, d.WorkersPerInstance, d.WorkersPerConnection, d.Holders = b.Seed, 8, 16, 4, 4, 64
	d.Silence, d.SyncTimeout, d.EndsPerStep = 1200*effects.Millisecond, 500*effects.Millisecond, 16
	return c
}

// configureDirectories configures a rank to report to the directories and to query the directories. Limits that end
// work are small, and the journal often holds fewer changes than occur.
func configureDirectories(p *plan.Plan, c *rank.Config) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 10, n) }
	for i := range directoriesOf(p) {
		node := int32(p.NodeCount() + i)
		c.Directory.Directories = append(c.Directory.Directories, registrar.Directory{
			RequestAddr: world.AddressOf(node, effects.ChannelDirectory), FeedAddr: world.AddressOf(node, effects.ChannelFeed),
		})
	}
	if !c.UsesDirectories() {
		return
	}
	d := registrar.Default()
	d.Directories, d.Worker = c.Directory.Directories, registrar.Worker{Location: "LocalCPUBackend"}
	d.RequestTimeout, d.BackoffMin, d.BackoffMax = 300*effects.Millisecond, 20*effects.Millisecond, 300*effects.Millisecond
	d.HeartbeatEvery, d.ReportOperations, d.LeaveTimeout = 250*effects.Millisecond, at(1).Between(1, 8), effects.Second
	d.SyncEvery, d.SyncEveryMax, d.SyncPause = 100*effects.Millisecond, 400*effects.Millisecond, 5*effects.Millisecond
	d.SyncBatchSlots, d.SyncPoll, d.SyncPollsMax, d.SyncResendMax = at(2).Between(2, 20), 100*effects.Millisecond, 4, 4
	d.LookupsMax, d.Window, d.CacheSize = at(3).Between(1, 8), uint16(at(4).Between(1, 3)), at(5).Between(0, 4)
	d.LookupTimeout, d.CacheTime = at(6).Duration(50*effects.Millisecond, 300*effects.Millisecond), at(7).Duration(0, 2*effects.Second)
	if at(9).ChancePermille(500) { // Directories often name nodes that have evicted the chunks, and their replies are kept.
		d.ReportDelay, d.ReportOperations = at(10).Duration(300*effects.Millisecond, 2*effects.Second), 64
		d.CacheSize, d.CacheTime = at(11).Between(2, 6), at(12).Duration(500*effects.Millisecond, 2*effects.Second)
	}
	c.Directory, c.Journal = d, uint32(1)<<at(8).Between(1, 7)
}

// configureNode sets the addresses on which a rank listens for lookups by peers, and the name under which the
// directories know the rank.
func configureNode(p *plan.Plan, n *world.Node, c *rank.Config) {
	configureDelay(n, c)
	c.ArenaPages = arenaPages(p, n)
	if c.DevicePages = secondPoolPages(p, n); c.DevicePages > 0 && c.Keeps {
		c.StagingPages = c.DevicePages
	}
	c.LookupAddr, c.PeerDoneAddr = n.Addr(effects.ChannelLookup), n.Addr(effects.ChannelPeerDone)
	if c.UsesDirectories() {
		address := n.Addr(effects.ChannelInit)
		c.Directory.Worker.Instance = world.NodeName(n.ID)
		c.Directory.Worker.URL = protocol.Endpoint{Host: address.Host, Port: address.Port}.String()
	}
}

// drawFindJobs marks most share jobs as jobs that ask the directories. Before some of them the receiver brings a part of the
// chunks, and then asks for all of them several times, so that it asks the directories for the rest.
func drawFindJobs(_ custom.Draws, p *plan.Plan) {
	for i := range len(p.Jobs) {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 10, n<<16|(1000+uint64(i))) }
		j := &p.Jobs[i]
		if !j.Flags[flowWord] || !at(0).ChancePermille(800) {
			continue
		}
		j.Flags = j.Flags.With(findWord)
		// The last chunk of a job may be shorter if it is not shared, so a part ends with a shared one.
		all := len(j.Keys)
		shared := slices.IndexFunc(append(slices.Clone(j.Keys), plan.FirstUnsharedKey), func(k uint32) bool { return k >= plan.FirstUnsharedKey })
		shared = min(shared, all-1)
		if shared < 1 || len(p.Jobs)+4 > plan.JobsMax || !at(1).ChancePermille(500) {
			continue
		}
		again := func(keys int, after time.Duration) {
			x := p.Jobs[i]
			x.Request, x.Keys, x.Batch, x.At = expand.UnusedRequest(p), slices.Clone(x.Keys[:keys]), keys, max(0, x.At+after)
			p.Jobs = append(p.Jobs, x)
		}
		again(at(2).Between(1, shared), -at(3).RoundedDuration(5*time.Millisecond, 200*time.Millisecond))
		for n := range uint64(3) {
			again(all, at(4+n).RoundedDuration(20*time.Millisecond, 500*time.Millisecond))
		}
	}
}

// isLegible reports whether b is a valid message of a worker or a directory.
func isLegible(b []byte) bool {
	tag, err := protocol.PeekControllerTag(b, nil)
	if err != nil {
		return false
	}
	m := protocol.NewMessage(tag)
	return m != nil && m.Decode(b, nil) == nil
}

var checkConverged = oracle.NewCheck("sought:", "converges")

// convergenceOracle checks that the hints of the directories become equal to the contents of the stores.
var convergenceOracle = oracle.New("converges", "some time after the last fault, a directory knows the chunks of every node, no "+
	"chunk more and none less", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, _ oracle.NodeIdle) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		for i := range directoriesOf(w.SourcePlan) {
			known := pd.NonRankMachine(w, i).(*serve.Machine)
			for id, key := range w.Keys {
				hash, ok := protocol.ChunkHashOfKey(key)
				if !ok {
					continue
				}
				call.CountJudged(checkConverged)
				_, has := pd.ReadyAt(n, key)
				if says := slices.Contains(known.InstancesWith(0, hash.Bits, nil), world.NodeName(n.ID)); says != has {
					call.Fail("%s says that node %d has key %d: %t, and the truth is %t", directoryNames[i], n.AsSubject(), oracle.Key(id), says,
						has)
				}
			}
		}
	})
})

// missCodes are the outcome codes of a Bring that blame no queried peer or directory.
var missCodes = []effects.Code{
	effects.OK, effects.NotFound, effects.NoMemory, effects.TooMany, effects.Expired, effects.Cancelled, effects.Draining,
	effects.TooLarge,
}

// findOracle checks that a directory which is down or gives wrong hints costs at most a miss. The same holds for a hint
// that names a node which is not there.
var findOracle = oracle.New("find",
	"chunks that are searched by directories arrive, or are a miss, whatever the directories say, and an engine that is told "+
		"that all arrived has them", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
			w := pd.ClusterOf(call)
			n := w.Nodes[call.Node()]
			if n.Custom {
				return
			}
			c := w.CommandOf(n, e.Ticket)
			if c == nil || c.Kind != wantBring || c.Finished || !w.Jobs[c.Job].Flags[findWord] {
				return
			}
			j := &w.Jobs[c.Job]
			switch {
			case !slices.Contains(missCodes, e.Code):
				call.Fail("node %d looks for chunks of request %q, which ends as %s", n.AsSubject(), oracle.Request(j.Name), e.Code)
			case e.Code == effects.OK && int(e.Hits) < len(j.Keys):
				call.Fail("node %d is told that all %d chunks of request %q arrived, and %d did", n.AsSubject(), len(j.Keys),
					oracle.Request(j.Name), e.Hits)
			}
		})
	})

// Package layerwise simulates prefill nodes that push each layer as soon as it is computed. It contains the behaviour
// of the engines, the random choices of a seed, the oracles and the small worlds. Package pd runs it through Flow.
//
// Example: an engine reserves pages, begins a request, saves layer after layer and finishes. If the engine is
// preempted, it waits until its pages are returned and computes the request again.
package layerwise

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow describes layerwise pushes to package pd.
var Flow = pd.Flow{
	Flag:     layerwiseFlag,
	Profiles: []expand.Profile{{Name: "layerwise", AfterWorld: drawWorld, AfterJobs: drawJobs, AfterCondense: growPools}},
	Scopes:   smallScopes,
	Layers:   &pd.LayeredChunks{PagesPerChunk: layerCount, SenderPagesPerChunk: layersPerPage},
	ConfigureRanks: func(p *plan.Plan, c *rank.Config) {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 11, n) }
		c.Layers = uint32(layerCount(p))
		if c.BatchMax > 0 { // Enough for every job.
			c.BatchMax = max(c.BatchMax, chunksMax*c.Layers)
		}
		c.MergeBytes = []uint64{1, 64, 128, 1 << 20}[at(drawMergeBytes).Below(4)]
		c.BatchesMax, c.RunsMax = uint32(at(drawBatchesMax).Between(1, 4)), p.Bounds.Requests
		c.SavesMax, c.ChunksMax = uint32(at(drawSavesMax).Between(16, 128)), uint32(at(drawChunksMax).Between(chunksMax, 64))
		if !draw.IsFixed(p.Seed) && at(drawTightLimits).ChancePermille(250) && !p.Topology.Flags["agent"] {
			c.ChunksMax, c.SavesMax = uint32(at(drawTightChunks).Between(1, chunksMax)), uint32(at(drawTightSaves).Between(2, 10))*c.Layers
		}
		c.BundlesMax = uint32(at(drawBundlesMax).Between(8, 64))
		if few := at(drawFewBundles); !draw.IsFixed(p.Seed) && few.ChancePermille(200) {
			c.BundlesMax = uint32(few.Rehash().Between(1, 8))
		}
		c.BundleTTL = c.Lease + effects.Duration(at(drawBundleTTL).Below(uint64(c.Lease)))
		c.BundleMaxTTL = c.BundleTTL * effects.Duration(at(drawBundleMaxTTL).Between(1, 4))
		if slices.ContainsFunc(p.Jobs, func(j plan.Job) bool { return j.Flags[slowFlag] }) {
			c.BundleMaxTTL = 16 * c.BundleTTL
		}
		if c.RunTTL = 20 * effects.Second; at(drawShortRunTTL).ChancePermille(200) && c.BundleMaxTTL < 16*c.BundleTTL {
			c.RunTTL = at(drawRunTTL).Duration(effects.Millisecond, effects.Second)
		}
		if at(drawFewRuns).ChancePermille(200) {
			// The draw of ChunksMax is used again. The two limits are therefore not independent; a draw of its own would
			// change the stored plans.
			c.RunsMax = uint32(at(drawChunksMax).Between(1, int(c.RunsMax)))
		}
		if hasFewSlots(p) {
			c.BatchesMax, c.RunsMax = 1, uint32(fewSlots(p))
		}
	},
	ConfigureNode: func(p *plan.Plan, n *world.Node, c *rank.Config) {
		if layers := layersPerPage(p, plan.Node(n.ID)); layers > 0 {
			c.Layout, _, _ = c.Layout.AllLayers(uint32(layers))
			c.Layers = 0
			return
		}
		at := draw.Hash(p.Seed, draw.Plan, 12, uint64(n.ID))
		if n.IsReceiver() && !draw.IsFixed(p.Seed) && at.ChancePermille(250) {
			// A quarter of the receivers accepts only whole chunks. Of these, three in ten have no layers at all; not if
			// there is a single layer, because a page with it would be a whole chunk.
			if c.WholeChunks = true; at.Rehash().ChancePermille(300) && c.Layers > 1 {
				c.Layers, c.WholeChunks = 0, false
			}
		}
	},
	BeginJob: beginJob, ContinueJob: continueJob,
	Commands: []pd.CommandKind{
		{Kind: wantBegin, HandleOutcome: handleOutcome},
		{Kind: wantSave, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: wantStop, HandleOutcome: handleOutcome},
		{Kind: wantFinish, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
	},
	Oracles: []oracle.Oracle{outcomesOracle, transferOracle, wholeOracle, proxyOracle, idleOracle, slotsOracle, limitsOracle},
}

// The numbers of the draws of ConfigureRanks. Number 0 is layerCount's, and 30 layersPerPage's.
const (
	drawMergeBytes = iota + 1
	drawBatchesMax
	drawSavesMax
	drawBundlesMax
	drawBundleTTL
	drawBundleMaxTTL
	drawShortRunTTL
	drawRunTTL
	drawFewRuns
	drawChunksMax
	drawTightLimits
	drawTightChunks
	drawTightSaves
	drawFewBundles
)

// layerwiseFlag is the flag of the plan for layerwise pushes. In a topology it allows prefill nodes to push each layer as
// soon as the layer is computed. In a job it means that the job's engine does so.
var layerwiseFlag = plan.RegisterFlag(plan.FlowFlag{
	Name: "layerwise",
	CheckTopology: func(p *plan.Plan) string {
		if t := &p.Topology; len(t.Pull)+len(t.Delay) > 0 || len(t.Flags) > 2 ||
			len(t.Flags) > 1 && !t.Flags["agent"] {
			return "layerwise pushes cannot be combined with pulling, recalling or sharing; leave out layerwise or the others"
		}
		return ""
	},
	CheckJob: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Flags["layerwise"] || j.Plain || j.PlainTo || j.Gather {
			return "a layerwise job needs topology.layerwise and a kvferry sender and receiver: leave out plain, plain_to and gather"
		}
		return ""
	},
})

// Further flags of layerwise jobs, for worlds in which nothing is drawn. A preempted job is preempted after the first
// save. The engine of a slow job takes so long for each layer that a chunk becomes whole only if the receiver extends
// its timeout with every layer. The Finish of a hasty job expires after a few delays
// of messages.
var (
	preemptedFlag = plan.RegisterFlag(plan.FlowFlag{Name: "preempted", CheckJob: checkLayerFlag})
	slowFlag      = plan.RegisterFlag(plan.FlowFlag{Name: "slow", CheckJob: checkLayerFlag})
	hastyFlag     = plan.RegisterFlag(plan.FlowFlag{Name: "hasty", CheckJob: checkLayerFlag})
)

// checkLayerFlag refuses these flags in a job that is not layerwise.
func checkLayerFlag(_ *plan.Plan, j *plan.Job) string {
	if !j.Flags[layerwiseFlag] {
		return "this flag needs layerwise; leave out the flag, or set layerwise"
	}
	return ""
}

// layerCount returns the number of layers of the model of a plan.
func layerCount(p *plan.Plan) int {
	if draw.IsFixed(p.Seed) {
		return 2
	}
	return draw.Hash(p.Seed, draw.Plan, 11, 0).Between(1, 8)
}

// layersPerPage returns the number of layers that a page of a node holds, or 0 if each page holds a single layer. In
// some worlds, the nodes that only receive keep all layers of a chunk in a page, so this is also the number of the
// sender's pages from which a chunk is gathered.
func layersPerPage(p *plan.Plan, n plan.Node) int {
	if draw.IsFixed(p.Seed) || p.IsSender(n) || !draw.Hash(p.Seed, draw.Plan, 11, 30).ChancePermille(150) {
		return 0
	}
	return layerCount(p)
}

// drawWorld draws a world in which prefill nodes push layers.
func drawWorld(d *expand.Draft) {
	p := d.Plan
	p.Topology.Flags = p.Topology.Flags.With(layerwiseFlag)
	p.Topology.Pull, p.Topology.Delay = nil, nil
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 11, 100+n) }
	layers := uint32(layerCount(p))
	p.Topology.SenderPages = min(p.Topology.SenderPages, 8) + layers*uint32(at(0).Between(2, 8))
	p.Topology.ReceiverPages = min(p.Topology.ReceiverPages, 8) + layers*uint32(at(1).Between(2, 10))
	if drawsFewSlots(p) {
		drawFewSlots(d)
	}
	drawCaches(d)
}

// drawsFewSlots reports whether the senders of a plan get so few slots for batches that requests wait for a slot. A
// request never waits for slots of other requests that go on, because each has its own. Requests that have ended hold
// slots as well, until nothing can touch their pages any more. Therefore the Finishes of many requests expire in such a
// plan, and other requests begin at once.
func drawsFewSlots(p *plan.Plan) bool {
	return !draw.IsFixed(p.Seed) && !p.Topology.Flags["agent"] && draw.Hash(p.Seed, draw.Plan, 11, 33).ChancePermille(fewSlotsPermille)
}

// hasFewSlots reports whether the senders of a plan have few slots for batches.
func hasFewSlots(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Jobs, func(j plan.Job) bool { return j.Flags[hastyFlag] })
}

// fewSlots returns the number of slots of such a plan.
func fewSlots(p *plan.Plan) int { return draw.Hash(p.Seed, draw.Plan, 20, 0).Between(2, 4) }

// fewSlotsPermille is the number of seeds per thousand with few slots for batches.
const fewSlotsPermille = 200

// drawFewSlots draws one sender with many requests in a short time, and puts that take long.
func drawFewSlots(d *expand.Draft) {
	p, at := d.Plan, func(n uint64) draw.Value { return draw.Hash(d.Seed, draw.Plan, 20, n) }
	p.Topology.Senders, p.Topology.Mismatch, d.Scale.Plain = 1, false, 0
	p.Topology.SenderPages, p.Topology.ReceiverPages = uint32(16*layerCount(p)), uint32(at(6).Between(1, 6)*layerCount(p))
	d.Scale.Jobs, d.Scale.Window = at(1).Between(10, 40), at(2).RoundedDuration(200*time.Millisecond, 3*time.Second)
	p.Delays.Message = at(3).RoundedDuration(2*time.Millisecond, 20*time.Millisecond)
	if at(4).ChancePermille(500) {
		p.Delays.Device = at(5).RoundedDuration(2*time.Millisecond, 20*time.Millisecond)
	}
}

// drawCaches makes the receivers of some worlds caches. Many requests begin with the same chunks there, as in the
// profile cache, so that chunks are found again and evicted.
func drawCaches(d *expand.Draft) {
	p := d.Plan
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 11, 200+n) }
	if !at(0).ChancePermille(300) {
		return
	}
	for i := range p.Topology.Receivers {
		if i == 0 || at(1).ChancePermille(600) {
			p.Topology.Cache = append(p.Topology.Cache, p.ReceiverAt(i))
		}
	}
	p.Topology.Trust = false
	d.Scale.Groups = at(2).Between(1, 3)
}

// growPools gives the pools of a condensed plan as many chunks as they have pages elsewhere, and delays openings again.
func growPools(p *plan.Plan) {
	layers := uint32(layerCount(p))
	p.Topology.SenderPages *= layers
	p.Topology.ReceiverPages *= layers
	if hasLateOpenings(p) {
		drawLateOpenings(p)
	}
}

// chunksMax is the largest number of chunks of a job.
const chunksMax = 8

// drawJobs draws which jobs are pushed layer by layer.
func drawJobs(d *expand.Draft) {
	p := d.Plan
	layers := layerCount(p)
	for i := range p.Jobs {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 13, uint64(i)<<8|n) }
		j := &p.Jobs[i]
		if layersPerPage(p, j.To) > 0 { // The receiver keeps all layers in a page, and accepts only layerwise jobs.
			j.Plain, j.PlainTo, j.Gather = false, false, false
		} else if j.Plain || j.PlainTo || j.Gather || !at(0).ChancePermille(700) && !drawsFewSlots(p) {
			continue
		}
		j.Flags = j.Flags.With(layerwiseFlag)
		j.Whole, j.Prefix, j.Take = false, 0, false
		keysMax := max(1, min(chunksMax, int(p.Topology.SenderPages)/layers))
		if drawsFewSlots(p) {
			keysMax = at(2).Between(1, 3)
		}
		var keys []uint32
		for _, k := range j.Keys {
			if len(keys) < keysMax && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		j.Keys = keys
		if at(1).ChancePermille(600) {
			j.Flags = j.Flags.With(pd.ReportsEnd)
		}
	}
	if hasLateOpenings(p) {
		drawLateOpenings(p)
	}
	if drawsFewSlots(p) {
		drawHasty(d)
	}
}

// drawHasty makes the jobs come in groups. The requests of every second group expire while the next group waits.
func drawHasty(d *expand.Draft) {
	n := fewSlots(d.Plan)
	groups := (len(d.Jobs) + 2*n - 1) / (2 * n)
	for i := range d.Jobs {
		j := &d.Jobs[i]
		if j.At = d.Scale.Window * time.Duration(i/(2*n)) / time.Duration(groups); i/n%2 == 0 {
			j.Flags = j.Flags.With(hastyFlag)
		} else {
			j.At += d.Delays.Message
		}
	}
}

// hasLateOpenings reports whether a plan delays attempts at opening chunks.
func hasLateOpenings(p *plan.Plan) bool {
	return !draw.IsFixed(p.Seed) && !p.Topology.Flags["agent"] && draw.Hash(p.Seed, draw.Plan, 11, 32).ChancePermille(150)
}

// drawLateOpenings delays first attempts at opening chunks until the next operation has opened the chunks. The receiver
// has room for two chunks, so that it refuses some of the second attempts.
func drawLateOpenings(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 19, n) }
	p.Timeouts.Alloc = at(0).RoundedDuration(20*time.Millisecond, 60*time.Millisecond)
	p.Timeouts.Reply = p.Timeouts.Alloc + at(1).RoundedDuration(10*time.Millisecond, 40*time.Millisecond)
	p.Timeouts.Put = 4 * time.Second
	p.Topology.ReceiverPages = uint32(at(2).Between(2, 3) * layerCount(p))
	for from := range int32(p.Topology.Senders) {
		for nth := range uint32(12) { // The connections, and the first requests on each connection.
			for k := range uint64(4) {
				if at(uint64(from)<<12 | uint64(nth)<<4 | k | 1<<20).ChancePermille(300) {
					p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultMessageDelayed, Nth: 2 * (k + 1),
						About: plan.AboutConn(from, 0, int32(p.ReceiverAt(0)), effects.ChannelAlloc, nth+1)})
				}
			}
		}
	}
}

// The kinds of the commands of engines that push layers.
var (
	wantBegin  = plan.NewCommandKind(20, "begin layers", true)
	wantSave   = plan.NewCommandKind(21, "save layer", true)
	wantStop   = plan.NewCommandKind(22, "stop layers", true) // for Preempt and Drop
	wantFinish = plan.NewCommandKind(23, "finish layers", true)
)

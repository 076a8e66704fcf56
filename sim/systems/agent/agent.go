// Package agent simulates engines that run in processes of their own. An engine process attaches to the rank of its
// node through the machine of fsm/session, over a stream that may be cut at any byte. Processes die, freeze and send
// false messages; the seed decides which of these faults occur and when. The package contains the engine processes, the
// agent of a node (the counterpart of runtime/attach) and the checks that the agent keeps its promises. Package pd runs
// it through Flow.
//
// Example: an engine process connects and attaches, calls CallReserve for the pages of a job, fills the pages and calls
// CallPut. The stream is cut before the answer arrives. The process connects again, resumes its session and lists the
// put among its open calls. The agent must report the outcome of the put again and must not begin the put a second
// time.
package agent

import (
	"reflect"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
	"github.com/kvferry/kvferry/sim/systems/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow describes attached engines to package pd. These engines put, get, fetch, share and push layers like engines in
// the rank's process.
var Flow = pd.Flow{
	Flag:     flowWord,
	Profiles: []expand.Profile{{Name: "agent", AfterWorld: drawWorld, AfterJobs: drawJobs}},
	Scopes:   smallScopes,
	StartJob: startJob,
	Processes: &pd.EngineProcesses{FetchJob: fetchJob, HandleDelivery: handleDelivery, ScatterChunks: showChunks,
		StateType: reflect.TypeFor[*state](), ListFaults: listFaults},
	Commands: []pd.CommandKind{
		{Kind: plan.CommandReserve, HandleOutcome: handleOutcome},
		{Kind: plan.CommandPut, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: plan.CommandGet, HandleOutcome: handleOutcome}, {Kind: plan.CommandContains, HandleOutcome: handleOutcome},
		{Kind: plan.CommandRelease, HandleOutcome: handleOutcome}, {Kind: plan.CommandUnpin, HandleOutcome: handleOutcome},
		{Kind: plan.CommandFetch, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: plan.CommandAbandon, HandleOutcome: handleOutcome},
		{Kind: pd.WantEnd, HandleOutcome: handleOutcome}, {Kind: p2p.WantBring, HandleOutcome: handleOutcome},
		{Kind: p2p.WantStore, HandleOutcome: handleOutcome},
		{Kind: p2p.WantShare, HandleOutcome: handleOutcome}, {Kind: p2p.WantWithdraw, HandleOutcome: handleOutcome},
		{Kind: layerwise.WantBegin, HandleOutcome: handleOutcome}, {Kind: layerwise.WantStop, HandleOutcome: handleOutcome},
		{Kind: layerwise.WantSave, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: layerwise.WantFinish, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
	},
	Oracles: []oracle.Oracle{leftoversOracle},
}

// flowWord is the word of the plan for attached engines. In a topology the word allows engines in processes of their
// own. In a job the word means that attached engines send and read the job.
var flowWord = plan.RegisterFlag(plan.FlowFlag{
	Name:          "agent",
	CheckTopology: func(*plan.Plan) string { return "" },
	CheckJob: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Flags["agent"] || j.Plain || j.PlainTo || j.Gather || j.Whole {
			return "an attached engine needs topology.agent and puts the whole job at once; leave out plain, plain_to, gather and whole"
		}
		return ""
	},
})

// combinedFlow returns the flow that a seed combines with attached engines, or nil: about half of the seeds have none.
func combinedFlow(p *plan.Plan) *pd.Flow {
	switch d := draw.Hash(p.Seed, draw.Plan, 19, 0); {
	case d.ChancePermille(250):
		return &p2p.Flow
	case d.Rehash().ChancePermille(300):
		return &layerwise.Flow
	}
	return nil
}

// drawWorld draws the topology: another flow beside the attached engines, or nodes that pull and delay.
func drawWorld(d *expand.Draft) {
	p := d.Plan
	if f := combinedFlow(p); f != nil {
		f.Profiles[0].AfterWorld(d)
		if at := draw.Hash(p.Seed, draw.Plan, 19, 10); f == &layerwise.Flow && at.ChancePermille(400) {
			p.Bounds.Requests = uint32(at.Rehash().Between(2, 5)) // A limit so low that many requests are refused.
		}
	} else if at := draw.Hash(p.Seed, draw.Plan, 19, 1); at.ChancePermille(600) {
		d.Topology.Pull = nil // Held puts and fetches need pulling nodes.
		for i := range p.Topology.Senders {
			d.Topology.Pull = append(d.Topology.Pull, plan.Node(i))
		}
		p.Timeouts.PullTTL = min(p.Timeouts.PullTTL, p.Timeouts.Lease)
		if d.Topology.Delay = nil; at.Rehash().ChancePermille(600) {
			for i := range p.Topology.Receivers {
				d.Topology.Delay = append(d.Topology.Delay, p.ReceiverAt(i))
			}
		}
		drawPullLimits(p)
	}
	d.Topology.Flags = d.Topology.Flags.With(flowWord)
}

// drawPullLimits draws the timeouts and the limits of pulling.
func drawPullLimits(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 19, n) }
	p.Timeouts.Read = at(2).RoundedDuration(100*time.Millisecond, 3*time.Second)
	p.Timeouts.Fetch = at(3).RoundedDuration(100*time.Millisecond, 3*time.Second)
	p.Timeouts.Lead = at(4).RoundedDuration(time.Millisecond, (p.Timeouts.PullTTL-p.Timeouts.LeaseGuard)/2)
	p.Timeouts.Loan = at(5).RoundedDuration(p.Timeouts.PullTTL, 4*p.Timeouts.PullTTL)
	if at(6).ChancePermille(150) { // Small tables, which are often full.
		p.Bounds.Offers, p.Bounds.Places = uint32(at(7).Between(1, 6)), uint32(at(8).Between(2, 24))
		p.Bounds.Fetches = uint32(at(9).Between(1, 4))
	}
	if at(11).ChancePermille(500) { // A fetch of several chunks has several batches.
		p.Bounds.Staging = uint32(at(12).Between(1, 4))
	}
}

// drawJobs makes attached engines handle most jobs.
func drawJobs(d *expand.Draft) {
	p := d.Plan
	if f := combinedFlow(p); f != nil {
		f.Profiles[0].AfterJobs(d)
	}
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Plain || j.PlainTo || j.Gather || !draw.Hash(p.Seed, draw.Plan, 18, uint64(i)).ChancePermille(750) {
			continue
		}
		keyCount := len(j.Keys)
		if pages := int(p.Topology.SenderPages); keyCount > pages && !j.Flags[layerwise.Flow.Flag] {
			for keyCount = pages; keyCount > 0 && isKeyShared(p, i, j.Keys[keyCount-1]); keyCount-- {
			}
		}
		if keyCount == 0 {
			continue
		}
		j.Flags, j.Whole, j.Early, j.Keys = j.Flags.With(flowWord), false, false, j.Keys[:keyCount]
		j.Batch = len(j.Keys)
		if draw.Hash(p.Seed, draw.Plan, 20, uint64(i)).ChancePermille(600) {
			j.Flags = j.Flags.With(pd.ReportsEnd)
		}
	}
}

// isKeyShared reports whether a key is shared with a job other than i. As the last key of job i the key could name a
// shorter chunk, while the second job would use the key for a whole chunk.
func isKeyShared(p *plan.Plan, i int, key uint32) bool {
	if key < plan.FirstUnsharedKey {
		return false
	}
	for k := range p.Jobs {
		if k != i && slices.Contains(p.Jobs[k].Keys, key) {
			return true
		}
	}
	return false
}

// startJob makes an engine of the sender begin a job, or an engine of the receiver if the chunks of the job are shared.
func startJob(w *pd.Cluster, j *pd.Job) {
	t := task{job: j.Index, kind: taskPut}
	n := w.Nodes[j.Sender]
	switch {
	case j.Flags[p2p.Flow.Flag]:
		t.kind, n = taskBring, w.Nodes[j.Receiver]
	case j.Flags[layerwise.Flow.Flag]:
		t.kind = taskCompute
	}
	if n.Up && !j.IsProbe() {
		stateOf(w).engineFor(n, j).addTask(&t)
	}
}

// fetchJob makes an engine of the receiver read the job.
func fetchJob(w *pd.Cluster, n *world.Node, j *pd.Job) {
	t := task{job: j.Index, kind: taskGet}
	if n.KeepsOffers && !j.Take {
		t.kind = taskFetch
	}
	stateOf(w).engineFor(n, j).addTask(&t)
}

// The kinds of scheduled deliveries; the comment names the component that acts.
const (
	deliveryTurn     = iota // an engine continues
	deliveryRead            // an agent reads from a stream
	deliveryExited          // an agent is notified that a process has ended
	deliveryEnd             // a process ends
	deliveryCut             // a connection is cut
	deliveryAbort           // an engine aborts a call
	deliveryDetach          // an engine detaches
	deliverySpareEnd        // a spare client of an engine closes its connection
)

// handleDelivery carries out a scheduled delivery.
func handleDelivery(w *pd.Cluster, d world.Delivery) {
	a := stateOf(w)
	switch d.A {
	case deliveryTurn:
		if e := a.engines[d.B]; e.wakeAt == w.Now || a.isSmallWorld() {
			e.wakeAt = 0
			e.runTurn()
		}
	case deliveryRead:
		a.streams[d.B-1].readFrames()
	case deliverySpareEnd:
		s := a.streams[d.B-1]
		a.engines[s.engine].endSpare(s)
	case deliveryEnd:
		if e := a.engines[d.B]; !e.exited {
			e.endProcess()
		}
	case deliveryExited:
		if h := a.hostOf(w.Nodes[a.engines[d.B].node]); h != nil {
			h.handleExit(a.engines[d.B])
		}
	default:
		applyFault(a.engines[d.B], d.A)
	}
}

var (
	checkHeld      = oracle.NewCheck("S19", "pages that attached engines hold")
	checkTargets   = oracle.NewCheck("S8", "targets of the calls of attached engines")
	checkShown     = oracle.NewCheck("S1", "chunks that are shown to attached engines")
	checkBounds    = oracle.NewCheck("S17", "limits on the calls and holdings of attached engines")
	checkRefused   = oracle.NewCheck("S17", "calls of attached engines that are refused for lack of room")
	checkCalls     = oracle.NewCheck("L1", "calls of attached engines")
	checkRepeated  = oracle.NewCheck("L1", "answers that are repeated after a reconnection")
	checkBegunOnce = oracle.NewCheck("L1", "calls that begin once")
	checkAbandoned = oracle.NewCheck("L2", "calls of engines that have exited or detached")
	checkDrains    = oracle.NewCheck("L6", "sessions without calls and holdings, at a drain")
	checkGivenBack = oracle.NewCheck("L2", "holdings of engines that have exited or detached")
	checkLeftovers = oracle.NewCheck("L2", "holdings that engines leave behind")
)

// leftoversOracle checks that nothing remains of engines that have exited or have given everything back.
var leftoversOracle = oracle.New("attached engines", "an agent keeps nothing of engines that have exited, detached or released everything",
	func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, call *oracle.Call, _ oracle.NodeIdle) {
			w := pd.ClusterOf(call)
			n := w.Nodes[call.Node()]
			h := stateOf(w).hostOf(n)
			if n.Custom || h == nil {
				return
			}
			call.CountJudged(checkLeftovers)
			if _, holdings := h.machine.Totals(); holdings+len(h.holdings)+len(h.callByTicket) > 0 {
				call.FailCheck(checkLeftovers, "node %d keeps %d holdings for engines, and no engine works any more", n.AsSubject(), holdings)
				return
			}
			for _, x := range h.sessions {
				if x.detached {
					call.FailCheck(checkLeftovers, "node %d keeps the session of an engine that has detached", n.AsSubject())
				}
			}
		})
	})

const settleTimeout = 300 * effects.Second // the time after the last fault by which all calls have ended

package directory

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/protocol/sharedlog"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

const replicasName, thirdName, logName = "replicas", "third", "log"

// replicaNames lists the directories that share a log.
var replicaNames = []string{directoryName, secondName, thirdName}

// Replicas is a system of directories that share a log. Each worker reports to one or two of the directories, and all
// directories learn of the report.
var Replicas = custom.System{
	Name:      replicasName,
	Processes: replicaProcesses,
	Draw:      drawReplicas,
	Commands: settingCommands(logSettings, map[string]func(plan.Item) effects.CommandBody{
		"admit": newAdmit, "evict": newEvict, "lookup": newLookup, "settled": newFinalLookup, "leave": newLeave,
		impostorItem: newImpersonation, identitiesItem: func(plan.Item) effects.CommandBody { return &settingBody{} },
		"trim": func(x plan.Item) effects.CommandBody { return &trimBody{1 + int(x.Number)} },
		"lose": func(x plan.Item) effects.CommandBody { return &loseBody{1 + int(x.Number)/4} },
		"wipe": func(x plan.Item) effects.CommandBody { return &wipeBody{x.Number%2 == 1} },
		"squeeze": func(x plan.Item) effects.CommandBody {
			return &squeezeBody{2 + int(x.Number)/30, effects.Duration(x.Span)}
		},
		"lag": func(x plan.Item) effects.CommandBody {
			return &lagBody{effects.Duration(10+2*x.Number) * effects.Millisecond, effects.Duration(x.Span)}
		},
	}),
	Oracles: []oracle.Oracle{replicaConvergenceOracle, wantRateOracle, logClientOracle, historyOracle, honestyOracle, repliesOracle,
		departureOracle, clientOracle},
	FactNames:      []string{"settled"},
	IsWellFormed:   func(b []byte) bool { return isLegible(b) || isLogMessage(b) },
	CommandTimeout: replicaConvergeTime + 2*time.Second,
	DriftMaxPPM:    20_000,
}

// replicaConvergeTime is the time after the last fault by which all directories know the truth. After the time that a
// directory needs by itself, a directory notices a missing report only with the next message about the worker, at the
// latest a heartbeat. The directory then requests a sync of the worker, at the latest wantMax after the previous
// request, and the directory that hears the worker starts the sync. A worker that is silent for one directory counts as
// silent at the other directories only after the same time again.
const replicaConvergeTime = convergeTime + 6*time.Second

// The usual values of the shortest and the longest time between two requests for a sync of the same worker.
const (
	wantMin = 400 * effects.Millisecond
	wantMax = 4 * wantMin
)

// wantLimit returns the most requests for a sync of a worker in twice the longest time between two: two more than the
// shortest time can be doubled.
func wantLimit(c *replica.Config) int {
	n := 2
	for d := c.WantMin; d < c.WantMax; d *= 2 {
		n++
	}
	return n
}

// directoriesOf returns the directories to which a worker reports: one, sometimes two, and seldom all.
func directoriesOf(p *plan.Plan, i int) []string {
	all := []string{replicaNames[i%len(replicaNames)]}
	d := draw.Hash(p.Seed, draw.Plan, 8, 16+uint64(i))
	if i >= len(replicaNames) && d.Rehash().Rehash().ChancePermille(100) {
		return replicaNames
	}
	if d.ChancePermille(250) {
		all = append(all, replicaNames[(i+1+int(d.Rehash().Below(2)))%len(replicaNames)])
	}
	return all
}

// ignoresSilence reports whether the directories of a plan of Replicas never give up a worker as silent. Errors must
// then be repaired in another way.
func ignoresSilence(p *plan.Plan) bool {
	return p.System == replicasName && draw.Hash(p.Seed, draw.Plan, 8, 48).ChancePermille(500)
}

// hasReliableLog reports whether the log also loses nothing, so that no second directory adopts a worker because the
// worker's own directory was silent.
func hasReliableLog(p *plan.Plan) bool {
	return ignoresSilence(p) && draw.Hash(p.Seed, draw.Plan, 8, 49).ChancePermille(500)
}

// silenceOf returns after which time without a message the directories of a plan that share a log drop a worker.
func silenceOf(p *plan.Plan) effects.Duration {
	if ignoresSilence(p) {
		return longerThanRun
	}
	return limitsOf(p).Silence
}

// longerThanRun is longer than any run.
const longerThanRun = 1000 * effects.Second

func replicaProcesses(p *plan.Plan) []custom.Process {
	all := sharingProcesses(workers, 40, movesWorkers(p), func(*serve.Config) {})
	if mayImpersonate(p) {
		all = append(all, impostorProcess(replicaNames, len(replicaNames)+1))
	}
	return all
}

// sharingProcesses returns directories that share a log of at least the given number of entries, and the given workers,
// which may change their hosts. The function may change the configuration of the directories.
func sharingProcesses(workers []workerNode, minEntries int, moves bool, adjust func(*serve.Config)) (all []custom.Process) {
	for _, name := range replicaNames {
		all = append(all, custom.Process{
			Name: name, Channels: connChannels[:],
			New: func(b custom.Boot) (effects.Machine, error) {
				c := directoryConfig(b, name)
				c.Directory.Yield, c.Directory.Fade = yieldOf(b.Plan), core.Default().Fade
				c.Directory.Silence = silenceOf(b.Plan)
				if hasReliableLog(b.Plan) {
					c.Directory.Yield = longerThanRun
				}
				c.Log = replicaConfig(b)
				adjust(&c)
				return serve.New(c)
			},
		})
	}
	all = append(all, custom.Process{Name: logName, Channels: []effects.Channel{effects.ChannelLog}, New: newLogServer(minEntries)})
	for i, x := range workers {
		all = append(all, custom.Process{Name: x.node, New: func(b custom.Boot) (effects.Machine, error) {
			return newNode(x.id, b, registrarConfig(b.Plan, x.id), directoriesOf(b.Plan, i))
		}, Moves: moves, Proves: identityOf(x.id)})
	}
	return all
}

// yieldOf returns the time without facts after which another directory's reports of a worker are accepted. It is longer
// than the longest time between two heartbeats and the time until both are read, so that a worker that two directories
// hear is not adopted by turns without a fault.
func yieldOf(p *plan.Plan) effects.Duration {
	return max(600*effects.Millisecond, 300*effects.Millisecond+2*logLimitsOf(p).PollInterval)
}

// replicaConfig returns the configuration by which a directory uses the log. The limits may make the directory miss
// entries, because there are further ways to recover.
func replicaConfig(b custom.Boot) replica.Config {
	c := logLimitsOf(b.Plan)
	c.Addr, c.Incarnation = b.Addr(logName, effects.ChannelLog), b.Seed|1
	return c
}

// logLimitsOf returns the limits and times by which the directories of a plan use the log.
func logLimitsOf(p *plan.Plan) replica.Config {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 8, 32+n) }
	c := replica.Default()
	c.EntryBytes, c.Authors = at(0).Between(400, 2000), at(2).Between(3, 8)
	c.ReadEntries = uint32(at(1).Between(c.Authors, 8))
	c.BufferBytes = at(3).Between(4000, 40_000)
	c.PollInterval, c.RequestTimeout, c.ReconnectDelay, c.WantMin = 150*effects.Millisecond, requestTimeout, 50*effects.Millisecond, wantMin
	c.WantMax = wantMax
	if hasReliableLog(p) { // Nothing is dropped.
		c.BufferBytes = replica.Default().BufferBytes
	}
	x := serve.Config{Log: c}
	applySettings(p, logSettings, &x)
	// A directory must be able to read the log before the others let it drop the entries. The workers tell less than
	// 24 bytes in a millisecond, and a read of all entries takes about ten replies.
	delay := x.Log.PollInterval + 20*effects.Duration(p.Delays.Message)
	x.Log.LogBytes = max(x.Log.LogBytes, int(24*delay/effects.Millisecond))
	if tellsMuch(p) { // Otherwise entries would be lost before they can be appended or read, as long as the run lasts.
		x.Log.BufferBytes = min(muchFactor*x.Log.BufferBytes, replica.Default().BufferBytes)
		x.Log.LogBytes = min(muchFactor*x.Log.LogBytes, c.LogBytes)
		x.Log.KeepEntries = min(muchFactor*x.Log.KeepEntries, c.KeepEntries)
	}
	return x.Log
}

// tellsMuch reports whether the workers of a plan send heartbeats about muchFactor times as often as usual. Over a slow
// network the log could not keep up with them, as long as the run lasts.
func tellsMuch(p *plan.Plan) bool {
	return p.System == replicasName && p.Delays.Message <= 1500*time.Microsecond && draw.Hash(p.Seed, draw.Plan, 8, 77).ChancePermille(400)
}

const muchFactor = 5

// drawReplicas draws the commands of the workers and the faults of the log.
func drawReplicas(d custom.Draws, p *plan.Plan) {
	if !hasReliableLog(p) {
		drawSettings(d, p, logSettings)
		drawSmallLog(d, p)
	}
	drawLongReads(d, p)
	drawWork(d, p, workers, replicaConvergeTime, len(replicaNames)+1)
	for _, x := range d.Items("lag", 0, 2, logName) {
		x.Span = (p.FaultsEnd - x.At) * 9 / 10
		p.Items = append(p.Items, x)
	}
	if hasReliableLog(p) {
		log := plan.Node(len(replicaNames))
		p.Faults = slices.DeleteFunc(p.Faults, func(x plan.ScheduledFault) bool { return x.Node == log })
	} else {
		drawLogFaults(d, p)
	}
	if ignoresSilence(p) { // If the deregistration of a worker is lost, only silence shows that the worker has left.
		p.Items = slices.DeleteFunc(p.Items, func(x plan.Item) bool { return x.Do == "leave" })
	}
}

// drawSmallLog draws a log of which the directories keep little, and which begins anew when they have read more than that.
func drawSmallLog(d custom.Draws, p *plan.Plan) {
	const what = "small log"
	if p.Profile == "calm" || p.Delays.Message > 3*time.Millisecond || d.NumberBelow(what, 0, 3) != 0 {
		return // Over a slow network such a log would lose entries before they are read, as long as the run lasts.
	}
	p.FaultsEnd = max(p.FaultsEnd, 3*time.Second)
	p.Items = append(p.Items, plan.Item{Do: "log bytes", Node: 0, Number: 6000 + uint32(d.NumberBelow(what, 1, 6000))})
	for i := range 1 + d.NumberBelow(what, 2, 2) {
		p.Items = append(p.Items, plan.Item{
			Do: "wipe", Node: plan.Node(len(replicaNames)), At: d.Duration(what, 3+i, p.FaultsEnd*6/10, p.FaultsEnd), Number: 1,
		})
	}
}

// drawLongReads draws directories that start when the log has more frames than a reply, and replies that have more frames
// than a step may handle.
func drawLongReads(d custom.Draws, p *plan.Plan) {
	const what = "long reads"
	if p.Profile == "calm" || !tellsMuch(p) {
		return
	}
	p.FaultsEnd = max(p.FaultsEnd, 4*time.Second)
	p.Items = append(p.Items, plan.Item{Do: "read entries", Node: 0, Number: 100 + uint32(d.NumberBelow(what, 0, 100))})
	for i := range 1 + d.NumberBelow(what, 1, 2) {
		p.Faults = append(p.Faults, plan.ScheduledFault{
			Fault: plan.FaultCrash, At: d.Duration(what, 2+i, p.FaultsEnd*8/10, p.FaultsEnd),
			Node: plan.Node(d.NumberBelow(what, 4+i, uint64(len(replicaNames)))),
		})
	}
}

// drawLogFaults draws the faults of the log.
func drawLogFaults(d custom.Draws, p *plan.Plan) {
	faults := append(d.Items("trim", 0, 3, logName), d.Items("lose", 0, 3, logName)...)
	faults = append(faults, d.Items("wipe", 0, 1, logName)...)
	for _, x := range d.Items("squeeze", 0, 1, logName) {
		x.Span = (p.FaultsEnd - x.At) * 9 / 10
		faults = append(faults, x)
	}
	p.Items = append(p.Items, faults...)
}

// isLogMessage reports whether bytes are a request to the log or a reply of the log.
func isLogMessage(b []byte) bool {
	return new(sharedlog.Request).Decode(b) == nil || new(sharedlog.Reply).Decode(b) == nil
}

var (
	checkReplicasConverged = oracle.NewCheck("replicas:", "replicas converge")
	checkWantRate          = oracle.NewCheck("replicas:", "sync requests")
	checkHistory           = oracle.NewCheck("replicas:", "history")
)

// replicaConvergenceOracle checks that every directory knows what any directory was told.
var replicaConvergenceOracle = oracle.New("replicas converge",
	"some time after the last fault, every directory that shares the log knows the chunks of every worker, "+
		"whichever directory the worker reports to, and no chunk of a worker that has left",
	checkLookups(checkConvergence(checkReplicasConverged, workers, replicaConvergeTime)))

// wantRateOracle limits the requests for syncs: a directory that is behind in the log must not add to the log's load.
var wantRateOracle = oracle.New("sync requests",
	"a directory requests syncs of a worker of another directory at most two times more often than the shortest delay can be "+
		"doubled, in twice the longest delay, whatever is lost, as long as it knows the worker",
	func(l *oracle.Subscriptions[wantTimes]) {
		oracle.On(l, func(b *wantTimes, c *oracle.Call, e *effects.Observe) {
			if e.Fact != effects.FactDirectory {
				return
			}
			is, of := workerID{instance: string(e.Why.Name), rank: e.Count}, core.NoteKind(e.ID)
			if of == core.WorkerWanted {
				b.recordWant(c, is)
			}
			switch of { // A worker that becomes known again begins anew.
			case core.WorkerLeft, core.WorkerSilent, core.WorkerDisconnected, core.WorkerDisplaced:
				delete(b.times[c.NodeName()], is)
			}
		})
		oracle.On(l, func(b *wantTimes, c *oracle.Call, _ oracle.IncarnationEnded) { delete(b.times, c.NodeName()) })
	})

// wantTimes records when each directory requested a sync of a worker, by the directory's clock.
type wantTimes struct {
	times  map[string]map[workerID][]effects.Time // by the directory's node
	limits replica.Config
}

func (b *wantTimes) recordWant(c *oracle.Call, id workerID) {
	if b.times == nil {
		b.times, b.limits = map[string]map[workerID][]effects.Time{}, logLimitsOf(planOf(c))
	}
	if b.times[c.NodeName()] == nil {
		b.times[c.NodeName()] = map[workerID][]effects.Time{}
	}
	c.CountJudged(checkWantRate)
	now := c.LocalTime()
	all := slices.DeleteFunc(b.times[c.NodeName()][id], func(t effects.Time) bool { return now.Sub(t) >= 2*b.limits.WantMax })
	if all = append(all, now); len(all) > wantLimit(&b.limits) {
		c.Fail("%s requests a sync of %s %d times in %v", c.NodeName(), id.instance, len(all), now.Sub(all[0]))
	}
	b.times[c.NodeName()][id] = all
}

// historyOracle checks that reports reach the directories through the log unchanged.
var historyOracle = oracle.New("history", "a directory states no chunk that the worker never had, and no address at which the worker "+
	"never was",
	func(l *oracle.Subscriptions[history]) {
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Command) { b.recordCommand(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Received) { b.recordMessage(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, e *effects.Reply) { b.checkReply(c, e) })
		oracle.On(l, func(b *history, c *oracle.Call, e oracle.StepEnded) {
			x, ok := e.Event.(*effects.Received)
			if !ok || !isFromImpostor(c, x.Origin) {
				return
			}
			if code := refusalIn(e.Effects); code == effects.OK || code == effects.TooMany {
				b.recordAccepted(x)
			}
		})
		oracle.On(l, func(b *history, c *oracle.Call, _ oracle.IncarnationEnded) {
			delete(b.chunks, c.NodeName())
			delete(b.requests, c.NodeName())
		})
	})

// A history records all chunks that workers ever had, and all their addresses.
type history struct {
	chunks   map[string][]uint64 // present chunks, by the name of a worker's node
	everHeld map[workerID][]uint64
	urls     map[workerID]map[string]bool
	requests map[string]map[effects.Request]request // by the name of a directory's node
}

func (b *history) recordCommand(c *oracle.Call, e *effects.Command) {
	x, admits := e.Body.(*admitBody)
	if !admits {
		return
	}
	w := slices.IndexFunc(allWorkers, func(w workerNode) bool { return w.node == c.NodeName() })
	if b.everHeld == nil {
		b.everHeld = map[workerID][]uint64{}
	}
	id := workerID{instance: allWorkers[w].id.instance, rank: allWorkers[w].id.rank}
	for _, k := range x.chunks {
		b.everHeld[id] = addChunk(b.everHeld[id], k)
	}
}

func (b *history) recordMessage(c *oracle.Call, e *effects.Received) {
	var r protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	var q protocol.BatchedP2PLookupMsg
	switch fromImpostor := isFromImpostor(c, e.Origin); {
	case r.Decode(e.Body, nil) == nil:
		if !fromImpostor {
			b.recordURL(r.Worker, r.PeerInitURL)
		}
	case h.Decode(e.Body, nil) == nil:
		if !fromImpostor {
			b.recordURL(h.Worker, h.PeerInitURL)
		}
	case e.Channel == effects.ChannelDirectory && q.Decode(e.Body, nil) == nil:
		if b.requests == nil {
			b.requests = map[string]map[effects.Request]request{}
		}
		if b.requests[c.NodeName()] == nil {
			b.requests[c.NodeName()] = map[effects.Request]request{}
		}
		b.requests[c.NodeName()][e.Request] = request{sender: workerIDOf(q.Worker), hashes: hashBits(q.Hashes)}
	}
}

// recordAccepted records what a message of the impostor says that a directory has accepted. What a refused message says
// must never be seen again.
func (b *history) recordAccepted(e *effects.Received) {
	var r protocol.RegisterMsg
	var h protocol.HeartbeatMsg
	var ops protocol.BatchedKVOperationMsg
	var op protocol.KVAdmitMsg
	var batch protocol.FullSyncBatchMsg
	admit := func(w protocol.Worker, chunk uint64) {
		if b.everHeld == nil {
			b.everHeld = map[workerID][]uint64{}
		}
		b.everHeld[workerIDOf(w)] = addChunk(b.everHeld[workerIDOf(w)], chunk)
	}
	switch {
	case r.Decode(e.Body, nil) == nil:
		b.recordURL(r.Worker, r.PeerInitURL)
	case h.Decode(e.Body, nil) == nil:
		b.recordURL(h.Worker, h.PeerInitURL)
	case ops.Decode(e.Body, nil) == nil:
		for i := range ops.Operations {
			admit(ops.Worker, ops.Operations[i].Key.Bits)
		}
	case op.Decode(e.Body, nil) == nil:
		admit(op.Worker, op.Key.Bits)
	case batch.Decode(e.Body, nil) == nil:
		for _, k := range batch.Keys {
			admit(batch.Worker, k.Bits)
		}
	}
}

func (b *history) recordURL(w protocol.Worker, url []byte) {
	if b.urls == nil {
		b.urls = map[workerID]map[string]bool{}
	}
	if b.urls[workerIDOf(w)] == nil {
		b.urls[workerIDOf(w)] = map[string]bool{}
	}
	b.urls[workerIDOf(w)][string(url)] = true
}

func (b *history) checkReply(c *oracle.Call, e *effects.Reply) {
	q, found := b.requests[c.NodeName()][e.Request]
	var m protocol.BatchedP2PLookupRetMsg
	if !found || m.Decode(e.Body, nil) != nil {
		return
	}
	delete(b.requests[c.NodeName()], e.Request)
	c.CountJudged(checkHistory)
	for i := range m.Holders {
		h := &m.Holders[i]
		id := workerID{instance: string(h.InstanceID), rank: q.sender.rank}
		if had := countPrefix(b.everHeld[id], q.hashes); int(h.HitChunks) > had {
			c.Fail("%s states that %s has %d chunks, and it never had more than %d of them", c.NodeName(), h.InstanceID, h.HitChunks, had)
		}
		if !b.urls[id][string(h.PeerInitURL)] {
			c.Fail("%s names %s at %s, which was never its address", c.NodeName(), h.InstanceID, h.PeerInitURL)
		}
	}
}

package directory

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/replica"
	"github.com/kvferry/kvferry/fsm/directory/serve"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// Fleet is Replicas at the size of a real deployment: workers start, leave and crash all the time.
var Fleet = custom.System{
	Name:           fleetName,
	Processes:      func(*plan.Plan) []custom.Process { return sharingProcesses(fleetWorkers, 1000, false, raiseLimits) },
	Draw:           drawFleet,
	Commands:       Replicas.Commands,
	Oracles:        []oracle.Oracle{fleetConvergenceOracle, historyOracle, honestyOracle, repliesOracle, departureOracle, clientOracle},
	FactNames:      []string{"settled"},
	IsWellFormed:   Replicas.IsWellFormed,
	CommandTimeout: fleetConvergeTime + 2*time.Second,
	DriftMaxPPM:    20_000,
}

const (
	fleetName = "fleet"
	fleetSize = 64
)

// fleetWorkers lists the workers of Fleet.
var fleetWorkers = func() (all []workerNode) {
	for i := range fleetSize {
		all = append(all, workerNode{fmt.Sprintf("i%d", i), workerID{instance: fmt.Sprintf("i%d", i)}})
	}
	return all
}()

// allWorkers lists the workers of all systems. Their names are unique.
var allWorkers = append(slices.Clone(workers), fleetWorkers...)

// fleetConvergeTime is the time after the last fault by which all directories of a fleet know the truth: little longer
// than with few workers, because several syncs run at a time. BenchmarkFleet measures the real time.
const fleetConvergeTime = replicaConvergeTime + time.Second

// raiseLimits gives a directory room for a fleet, and makes it read the log as fast as the fleet writes.
func raiseLimits(c *serve.Config) {
	d := &c.Directory
	d.Instances, d.Workers, d.Holders, d.PeersPerLookup, d.HoldersPerChunk = 2*fleetSize, 2*fleetSize, 4*fleetSize, 2*fleetSize, 2*fleetSize
	d.Syncs += 4
	defaults := replica.Default()
	c.Log.BufferBytes, c.Log.EntryBytes, c.Log.ReadEntries = defaults.BufferBytes, defaults.EntryBytes, defaults.ReadEntries
}

// drawFleet draws the commands of the workers, and crashes in addition to the scheduled faults. From the last fault on,
// the first workers look chunks up regularly. Each of them uses a different directory, which shows when the directories
// agree.
func drawFleet(d custom.Draws, p *plan.Plan) {
	firstNode := len(replicaNames) + 1
	drawWork(d, p, fleetWorkers, fleetConvergeTime, firstNode)
	drawLogFaults(d, p)
	var names []string
	for _, x := range fleetWorkers {
		names = append(names, x.node)
	}
	for _, verb := range []string{"admit", "evict"} { // Most workers add chunks, and many remove some.
		for _, x := range d.Items(verb+" more", fleetSize, 3*fleetSize, names...) {
			x.Do = verb
			p.Items = append(p.Items, x)
		}
	}
	p.Items = append(p.Items, d.Items("leave", 0, fleetSize/8, names...)...)
	for _, x := range d.Items("crash", 0, fleetSize/2, names...) {
		p.Faults = append(p.Faults, plan.ScheduledFault{Fault: plan.FaultCrash, At: x.At, Node: x.Node})
	}
	for n := range uint32(fleetConvergeTime / lookupInterval) {
		for i := range replicaNames {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + time.Duration(n)*lookupInterval, Do: "settled", Node: plan.Node(firstNode + i), Number: n % promptCount,
			})
		}
	}
}

// lookupInterval is the interval of these lookups.
const lookupInterval = 200 * time.Millisecond

var checkFleetConverged = oracle.NewCheck("fleet:", "fleet converges")

// fleetConvergenceOracle checks that all directories of a fleet know the truth some time after the last fault.
var fleetConvergenceOracle = oracle.New("fleet converges",
	"some time after the last fault, every directory of a fleet knows the chunks of every worker, whichever directory the worker reports to, "+
		"and no chunk of a worker that has left", checkLookups(checkConvergence(checkFleetConverged, fleetWorkers, fleetConvergeTime)))

// WrongAnswers returns an oracle that reports no violations. For each wrong reply of a directory of a fleet, the
// function is called with the time since the last fault, or since the last change at a worker if that was later.
func WrongAnswers(report func(after effects.Duration)) oracle.Oracle {
	return oracle.New("wrong answers", "measures how long directories give wrong replies",
		checkLookups(func(b *ledger, x *directoryLedger, c *oracle.Call, q *request, m *protocol.BatchedP2PLookupRetMsg) {
			if b.faultsEndAt != 0 && c.Now() > max(b.faultsEndAt, b.lastChangeAt) &&
				findDifference(planOf(c), fleetWorkers, &x.limits, b, q, m) != "" {
				report(c.Now().Sub(max(b.faultsEndAt, b.lastChangeAt)))
			}
		}))
}

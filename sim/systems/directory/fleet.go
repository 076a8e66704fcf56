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
	"github.com/kvferry/kvferry/sim/systems/own"
)

// Fleet is Replicas at the size of a real deployment: workers start, leave and crash all the time.
var Fleet = own.System{
	Name:     "fleet",
	Nodes:    func(*plan.Plan) []own.Process { return sharers(fleet, 1000, ample) },
	Draw:     drawFleet,
	Do:       Replicas.Do,
	Oracles:  []oracle.Oracle{agrees, real, honest, answered, parted},
	Facts:    []string{"settled"},
	Legible:  Replicas.Legible,
	Patience: agreesIn + 2*time.Second,
	DriftPPM: 20_000,
}

const instances = 64

// fleet lists the workers of Fleet.
var fleet = func() (all []hand) {
	for i := range instances {
		all = append(all, hand{fmt.Sprintf("i%d", i), who{instance: fmt.Sprintf("i%d", i)}})
	}
	return all
}()

// everybody lists the workers of all systems. Their names are unique.
var everybody = append(slices.Clone(workers), fleet...)

// agreesIn is the time after the last fault by which all directories of a fleet know the truth: little longer than
// with few workers, because several syncs run at a time. BenchmarkFleet measures the real time.
const agreesIn = spreadsIn + time.Second

// ample gives a directory room for a fleet, and makes it read the log as fast as the fleet writes.
func ample(c *serve.Config) {
	d := &c.Directory
	d.Instances, d.Workers, d.Holders, d.PeersPerLookup, d.HoldersPerChunk = 2*instances, 2*instances, 4*instances, 2*instances, 2*instances
	d.Syncs += 4
	is := replica.Default()
	c.Log.BufferBytes, c.Log.EntryBytes, c.Log.ReadEntries = is.BufferBytes, is.EntryBytes, is.ReadEntries
}

// drawFleet draws the commands of the workers, and crashes in addition to the scheduled faults. From the last fault on,
// the first workers look chunks up regularly. Each of them uses a different directory, which shows when the directories
// agree.
func drawFleet(d own.Draws, p *plan.Plan) {
	first := len(sharing) + 1
	drawWork(d, p, fleet, agreesIn, first)
	drawLog(d, p)
	var names []string
	for _, x := range fleet {
		names = append(names, x.name)
	}
	for _, verb := range []string{"admit", "evict"} { // Most workers add chunks, and many remove some.
		for _, x := range d.Items(verb+" more", instances, 3*instances, names...) {
			x.Do = verb
			p.Items = append(p.Items, x)
		}
	}
	p.Items = append(p.Items, d.Items("leave", 0, instances/8, names...)...)
	for _, x := range d.Items("crash", 0, instances/2, names...) {
		p.Faults = append(p.Faults, plan.Scheduled{Fault: plan.FaultCrash, At: x.At, Node: x.Node})
	}
	for n := range uint32(agreesIn / seenEvery) {
		for i := range sharing {
			p.Items = append(p.Items, plan.Item{
				At: p.FaultsEnd + time.Duration(n)*seenEvery, Do: "settled", Node: plan.Node(first + i), Number: n % prompts,
			})
		}
	}
}

// seenEvery is the interval of these lookups.
const seenEvery = 200 * time.Millisecond

// agrees checks that all directories of a fleet know the truth some time after the last fault.
var agrees = oracle.Of("agrees",
	"a while after the last fault each directory of a fleet knows of each worker, whomever that tells, what it has, "+
		"and nothing of one that has left", keeps(knows(fleet, agreesIn)))

// Wrong returns an oracle that reports no violations. For each wrong reply of a directory of a fleet, the function is
// called with the time since the last fault, or since the last change at a worker if that was later.
func Wrong(late func(after effects.Duration)) oracle.Oracle {
	return oracle.Of("wrong", "says when answers are not so",
		keeps(func(b *book, _ *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
			if b.healed != 0 && c.Now() > max(b.healed, b.did) && differs(fleet, b, q, m) != "" {
				late(c.Now().Sub(max(b.healed, b.did)))
			}
		}))
}

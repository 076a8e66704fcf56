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

// Fleet is what Replicas is at the size of a real one: its workers come, go and crash all the time.
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

// fleet are its workers.
var fleet = func() (all []hand) {
	for i := range instances {
		all = append(all, hand{fmt.Sprintf("i%d", i), who{instance: fmt.Sprintf("i%d", i)}})
	}
	return all
}()

// everybody are all workers there are in any of these systems; each has another name.
var everybody = append(slices.Clone(workers), fleet...)

// agreesIn is how long after the last fault all directories of a fleet know what is so: hardly longer than among a few
// workers, as several tell all they have at a time. BenchmarkFleet says how long it takes.
const agreesIn = spreadsIn + time.Second

// ample has a directory have room for a fleet, and its log read as fast as the fleet speaks.
func ample(c *serve.Config) {
	d := &c.Directory
	d.Instances, d.Workers, d.Holders, d.PeersPerLookup, d.HoldersPerChunk = 2*instances, 2*instances, 4*instances, 2*instances, 2*instances
	d.Syncs += 4
	is := replica.Default()
	c.Log.BufferBytes, c.Log.EntryBytes, c.Log.ReadEntries = is.BufferBytes, is.EntryBytes, is.ReadEntries
}

// drawFleet draws what workers do, and that some crash besides those that faults hit. From the last fault on each of
// the first workers asks now and then; each of them tells another directory, so that it is seen when these agree.
func drawFleet(d own.Draws, p *plan.Plan) {
	first := len(sharing) + 1
	drawWork(d, p, fleet, agreesIn, first)
	drawLog(d, p)
	var names []string
	for _, x := range fleet {
		names = append(names, x.name)
	}
	for _, verb := range []string{"admit", "evict"} { // Each has something, and most do something.
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

// seenEvery is how often a directory's answer is looked at until all agree.
const seenEvery = 200 * time.Millisecond

// agrees: churn ends in what is so.
var agrees = oracle.Of("agrees",
	"a while after the last fault each directory of a fleet knows of each worker, whomever that tells, what it has, "+
		"and nothing of one that has left", keeps(knows(fleet, agreesIn)))

// Wrong is an oracle that refuses nothing: it says how long after the last fault and the last thing that an engine did
// a directory of a fleet gave an answer that was not so.
func Wrong(late func(after effects.Duration)) oracle.Oracle {
	return oracle.Of("wrong", "says when answers are not so",
		keeps(func(b *book, _ *volume, c *oracle.Call, q *asked, m *protocol.BatchedP2PLookupRetMsg) {
			if b.healed != 0 && c.Now() > max(b.healed, b.did) && differs(fleet, b, q, m) != "" {
				late(c.Now().Sub(max(b.healed, b.did)))
			}
		}))
}

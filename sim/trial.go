package sim

import (
	"sync"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/systems"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/systems/pd/ledger"
)

// trial is a run: a cluster of ranks, the machines of users, and the oracles that judge both.
type trial struct {
	pd.Cluster
	nodes       nodeSet     `snap:"share"` // the nodes of the run
	spareMemory spareMemory `snap:"share"`
}

// spareMemory holds memory of an earlier run that this run may use again.
type spareMemory struct {
	rankOracles *ledger.Oracles // memory of the ranks' oracles; nil: none is left
	table       *oracle.Table
}

// newTrial returns a new trial that is ready to run a plan.
func newTrial(o Options, p *plan.Plan) (*trial, error) {
	w := &trial{}
	return w, w.prepareRun(o, p)
}

// prepareRun prepares an empty trial for a plan.
func (w *trial) prepareRun(o Options, p *plan.Plan) error {
	nodes, err := o.System.newNodeSet(p)
	if err != nil {
		return err
	}
	w.nodes = nodes
	w.PrepareRun(p, nodes.rankCount, systems.Flows)
	w.Result.Coverage = o.coverage
	w.BeginRun(p, w)
	w.Proxy, w.HasEngines = nodes.proxy, nodes.rankCount > 0
	w.RecordsStrikes, w.DriverMistake, w.Journal.Sink = o.RecordStrikes, o.driverMistake, o.Log
	w.TracesPuts = o.tracesPuts
	if len(nodes.customs) > 0 {
		w.Journal.FactName = w.factName
	}
	w.seatOracles(&o)
	if err := w.StartNodes(nodes.nodeCount()); err != nil {
		return err
	}
	if o.RecordTrace {
		w.Journal.Observer = story.New(w)
	}
	w.StartEngines()
	w.QueueFaults(p.Faults)
	return nil
}

// DetachClone makes a copy of a trial independent of the original.
func (w *trial) DetachClone() {
	w.System = w
	w.ledgerState().SetReferences(&w.Cluster)
	w.Panel.AttachRun(oracleWorld{&w.World})
}

// trials holds trials of runs that are over. The trials are empty, but the next run on the same core can use their
// memory again. Machines are created anew for every incarnation, as in reality.
var trials = sync.Pool{New: func() any { return &trial{} }}

// recycleTrial empties a trial that ran to its end and keeps the trial for a later run. A trial that failed is not
// kept, because its invariants may be broken.
func (w *trial) recycleTrial() {
	spareMemory := spareMemory{w.ledgerState(), w.Panel.Table()}
	w.ClearRun()
	*w = trial{Cluster: w.Cluster, spareMemory: spareMemory}
	trials.Put(w)
}

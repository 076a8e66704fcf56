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
	cast  cast  `snap:"share"` // the nodes of the run
	spare spare `snap:"share"`
}

// spare holds memory of an earlier run that this run may use again.
type spare struct {
	ranks *ledger.Oracles // memory of the ranks' oracles; nil: none is left
	table *oracle.Table
}

// newTrial returns a new trial that is ready to run a plan.
func newTrial(o Options, p *plan.Plan) (*trial, error) {
	w := &trial{}
	return w, w.begin(o, p)
}

// begin prepares an empty trial for a plan.
func (w *trial) begin(o Options, p *plan.Plan) error {
	c, err := o.System.castOf(p)
	if err != nil {
		return err
	}
	w.cast = c
	w.Prepare(p, c.ranks, systems.Flows)
	w.Result.Coverage = o.coverage
	w.Begin(p, w)
	w.Proxy, w.Engines = c.proxy, c.ranks > 0
	w.Recording, w.Careless, w.Journal.Sink = o.Strikes, o.careless, o.Log
	if len(c.own) > 0 {
		w.Journal.FactName = w.factName
	}
	w.empanel(&o)
	if err := w.Populate(c.nodes()); err != nil {
		return err
	}
	if o.Record {
		w.Journal.Rec = story.New(w)
	}
	w.StartEngines()
	w.Schedule(p.Faults)
	return nil
}

// Cloned makes a copy of a trial independent of the original.
func (w *trial) Cloned() {
	w.System = w
	w.ledger().Of(&w.Cluster)
	w.Panel.Cloned(judged{&w.World})
}

// trials holds trials of runs that are over. The trials are empty, but the next run on the same core can use their
// memory again. Machines are created anew for every incarnation, as in reality.
var trials = sync.Pool{New: func() any { return &trial{} }}

// recycleTrial empties a trial that ran to its end and keeps the trial for a later run. A trial that failed is not
// kept, because its invariants may be broken.
func (w *trial) retire() {
	left := spare{w.ledger(), w.Panel.Table()}
	w.Clear()
	*w = trial{Cluster: w.Cluster, spare: left}
	trials.Put(w)
}

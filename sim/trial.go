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

// trial is one run: a cluster of ranks, machines of users, and who judges all of it.
type trial struct {
	pd.Cluster
	cast  cast  `snap:"share"` // who takes part
	spare spare `snap:"share"`
}

// spare is what an earlier run has left that this one may use.
type spare struct {
	ranks *ledger.Oracles // their memory; nil: none is left
	table *oracle.Table
}

func newTrial(o Options, p *plan.Plan) (*trial, error) {
	w := &trial{}
	return w, w.begin(o, p)
}

// begin makes a trial that is empty ready for a plan.
func (w *trial) begin(o Options, p *plan.Plan) error {
	c, err := o.System.castOf(p)
	if err != nil {
		return err
	}
	w.cast = c
	w.Prepare(p, c.ranks, systems.Flows)
	runs := &pd.System
	if len(c.own) > 0 {
		runs = &ownSystem
	}
	w.Result.Coverage = o.coverage
	w.Begin(p, runs, w)
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
	w.System.Engine.Begin(&w.World)
	w.Schedule(p.Faults)
	return nil
}

// Cloned says to a copy of a trial that it is one by itself.
func (w *trial) Cloned() {
	w.Side = w
	w.ledger().Of(&w.Cluster)
	w.Panel.Cloned(judged{&w.World})
}

// trials are of runs that are over, empty again but for their memory: the next run on that core has no need to make
// its own. Machines are made anew for every life, as in reality.
var trials = sync.Pool{New: func() any { return &trial{} }}

// retire empties a trial that was run to its end and keeps it for another run. One that failed is left alone: its
// invariants may be what broke.
func (w *trial) retire() {
	left := spare{w.ledger(), w.Panel.Table()}
	w.Clear()
	*w = trial{Cluster: w.Cluster, spare: left}
	trials.Put(w)
}

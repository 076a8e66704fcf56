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
	cast     cast `snap:"share"` // who takes part
	oracles  ledger.Oracles
	users    []oracle.Judge // the oracles of users
	watchers []watched      `snap:"share"`
	bench    bench          `snap:"share"`
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
	w.judgeFlows()
	runs := &pd.System
	if len(c.own) > 0 {
		runs = &ownSystem
		w.judge(o.System)
	}
	w.Result.Coverage = o.coverage
	w.Begin(p, runs, w)
	w.Proxy, w.Engines = c.proxy, c.ranks > 0
	w.seated()
	w.Recording, w.Careless, w.Journal.Sink = o.Strikes, o.careless, o.Log
	if len(c.own) > 0 {
		w.Journal.FactName = w.factName
	}
	w.watch(o.Properties)
	w.oracles.Begin(&w.Cluster, c.nodes())
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

// seated has the world, and the engines, tell this trial's judges.
func (w *trial) seated() {
	o := &w.oracles
	w.bench = bench{o, (*ledger.OfNetwork)(o), (*ledger.OfPlanes)(o), (*ledger.OfEpochs)(o), w}
	w.Judges, w.Jury = &w.bench, (*ledger.OfEngines)(o)
}

// Cloned says to a copy of a trial that it is one by itself.
func (w *trial) Cloned() {
	w.Side = w
	w.oracles.Of(&w.Cluster)
	w.seated()
}

// trials are of runs that are over, empty again but for their memory: the next run on that core has no need to make
// its own. Machines are made anew for every life, as in reality.
var trials = sync.Pool{New: func() any { return &trial{} }}

// retire empties a trial that was run to its end and keeps it for another run. One that failed is left alone: its
// invariants may be what broke.
func (w *trial) retire() {
	w.Clear()
	*w = trial{Cluster: w.Cluster, oracles: w.oracles}
	trials.Put(w)
}

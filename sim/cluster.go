package sim

import (
	"sync"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// cluster is a world in which ranks run, with the engines that give them commands, plain peers beside them, and who
// judges all of it.
type cluster struct {
	world.World
	plan        pdSetting `snap:"share"` // what the source says
	cast        cast      `snap:"share"` // who takes part
	oracles     oracles
	users       []oracle.Judge // the oracles of users
	watchers    []watched      `snap:"share"`
	plainWrites []plainWrite
	reader      plainReader `snap:"share"`
	rewritten   []byte      `snap:"scratch"` // the newest message in other forms
	parted      bool        // a put that was a part of a call has ended in this step

	jobs       []job
	commands   []command                  `snap:"bag"` // by ticket-1
	undone     world.Live[effects.Ticket] `snap:"skip"`
	bodies     bodies                     `snap:"scratch"`
	given      [plan.Wants]uint32         `snap:"skip"` // commands that are for no job
	unfinished int                        // engine commands without their Deliver or Return
	sentBefore [][]sentBefore             `snap:"skip"` // by node: its requests on connections with a window
}

// bodies is the memory of commands, see [stock].
type bodies struct {
	reserves world.Arena[ops.Reserve]
	puts     world.Arena[ops.Put]
	releases world.Arena[ops.Release]
	gets     world.Arena[ops.Get]
	contains world.Arena[ops.Contains]
	fetches  world.Arena[ops.Fetch]
	unpins   world.Arena[ops.Unpin]
}

func (s *bodies) reset() {
	s.reserves.Reset()
	s.puts.Reset()
	s.releases.Reset()
	s.gets.Reset()
	s.contains.Reset()
	s.fetches.Reset()
	s.unpins.Reset()
}

// of is the cluster that a world is part of.
func of(w *world.World) *cluster { return w.Side.(*cluster) }

func newCluster(o Options, p *plan.Plan) (*cluster, error) {
	w := &cluster{}
	return w, w.begin(o, p)
}

// begin makes a cluster that is empty ready for a plan.
func (w *cluster) begin(o Options, p *plan.Plan) error {
	c, err := o.System.castOf(p)
	if err != nil {
		return err
	}
	w.plan, w.cast = settingOf(p), c
	runs := &pdSystem
	if len(c.own) > 0 {
		runs = &ownSystem
		w.judge(o.System)
	}
	w.Begin(p, runs, w)
	w.Proxy, w.Engines = c.proxy, c.ranks > 0
	w.Judges = &w.oracles
	w.Recording, w.Careless, w.Journal.Sink = o.Strikes, o.careless, o.Log
	w.watch(o.Properties)
	w.oracles.begin(w)
	for range c.nodes() - len(w.sentBefore) {
		w.sentBefore = append(w.sentBefore, nil)
	}
	if err := w.Populate(c.nodes()); err != nil {
		return err
	}
	if o.Record {
		rec := newRecorder(w)
		rec.begin()
		w.Journal.Rec = rec
	}
	w.System.Engine.Begin(&w.World)
	w.Schedule(p.Faults)
	return nil
}

// cloned says to a copy of a cluster that it is one by itself.
func (w *cluster) cloned() {
	w.Side, w.Judges = w, &w.oracles
}

// clusters are of runs that are over, empty again but for their memory: the next run on that core has no need to make
// its own. Machines are made anew for every life, as in reality.
var clusters = sync.Pool{New: func() any { return &cluster{} }}

// retire empties a cluster that was run to its end and keeps it for another run. One that failed is left alone: its
// invariants may be what broke.
func (w *cluster) retire() {
	w.Retire()
	w.bodies.reset()
	for i := range w.sentBefore {
		w.sentBefore[i] = w.sentBefore[i][:0]
	}
	*w = cluster{
		World: w.World, oracles: w.oracles, bodies: w.bodies, sentBefore: w.sentBefore,
		jobs: w.jobs[:0], commands: w.commands[:0], undone: w.undone.Emptied(), plainWrites: w.plainWrites[:0],
		rewritten: w.rewritten[:0],
	}
	clusters.Put(w)
}

// tidy is called between deliveries: a command that has ended holds nothing later.
func (w *cluster) tidy() {
	w.undone.Tidy(func(t effects.Ticket) bool { c := &w.commands[t-1]; return c.over && !c.held })
}

// addJob adds a job without chunks, in the memory of one of an earlier run if there is one.
func (w *cluster) addJob() *job {
	if len(w.jobs) == cap(w.jobs) {
		w.jobs = append(w.jobs, job{})
		return &w.jobs[len(w.jobs)-1]
	}
	w.jobs = w.jobs[:len(w.jobs)+1]
	j := &w.jobs[len(w.jobs)-1]
	*j = job{name: j.name[:0], batches: j.batches[:0], keys: j.keys[:0], ids: j.ids[:0]}
	return j
}

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd/ledger"
	"github.com/kvferry/kvferry/sim/world"
)

// RunEnded is reported to oracles when a run is over and no promise was broken.
type RunEnded struct{ Result *Result }

var onRunEnded = oracle.NewHappening[RunEnded]()

// reportRunEnd reports that a run is over. The panel passes on nothing once a promise is broken.
func (w *trial) reportRunEnd() { onRunEnded.Report(&w.Panel, oracle.NoNode, RunEnded{&w.Result}) }

// Promise returns the sentence that states a property of docs/safety.md, or "" if the property is unknown.
func Promise(property string) string { return oracle.Promise(property) }

// seatOracles adds the oracles that judge a trial: the oracles of ranks, of the flows in use, of the system, and of the
// caller.
func (w *trial) seatOracles(o *Options) {
	systems := make([]string, w.nodes.nodeCount())
	for i := range w.nodes.customs {
		systems[w.nodes.rankCount+i] = w.nodes.customs[i].system.Name
	}
	ranks, table := w.spareMemory.rankOracles, w.spareMemory.table
	if w.spareMemory = (spareMemory{}); ranks == nil {
		ranks = &ledger.Oracles{}
	}
	seats := []oracle.Seat{{Oracle: &ledger.Ledger, System: plan.PD, State: ranks}}
	addSeats := func(oracles []oracle.Oracle, system string) {
		for i := range oracles {
			seats = append(seats, oracle.Seat{Oracle: &oracles[i], System: system})
		}
	}
	for _, f := range w.Flows {
		addSeats(f.Oracles, f.Flag)
	}
	if len(w.nodes.customs) > 0 {
		addSeats(tableOracles, oracle.AllSystems)
		for _, s := range o.System.parts() {
			addSeats(s.Oracles, s.Name)
		}
	}
	addSeats(o.Oracles, oracle.AllSystems)
	w.Panel.StartRun(oracleWorld{&w.World}, systems, seats, table)
	ranks.BeginRun(&w.Cluster, w.nodes.nodeCount())
}

// ledgerState returns the memory of the ranks' oracles.
func (w *trial) ledgerState() *ledger.Oracles { return w.Panel.States[0].(*ledger.Oracles) }

// oracleWorld implements [oracle.World] for a world.
type oracleWorld struct{ world *world.World }

func (j oracleWorld) Now() effects.Time { return effects.Time(j.world.Now) }
func (j oracleWorld) LocalTime(node int32) effects.Time {
	return j.world.ReadClock(j.world.Nodes[node])
}
func (j oracleWorld) Incarnation(node int32) uint32 { return j.world.Nodes[node].Incarnation }
func (j oracleWorld) FrozenTime(node int32) effects.Duration {
	return j.world.Nodes[node].FrozenSince(0)
}
func (j oracleWorld) NodeName(node int32) string { return nodeNameOf(j.world.Nodes[node]) }
func (j oracleWorld) IsSender(node int32) bool   { return j.world.Nodes[node].IsSender() }
func (j oracleWorld) FailRun(name, promise, format string, args []any) {
	j.world.FailAs(name, promise, format, args...)
}

// SystemRun returns the system of the run.
func (j oracleWorld) SystemRun() any { return j.world.System }

// CountCheck counts in the coverage that a check judged or was void.
func (j oracleWorld) CountCheck(c oracle.Check, void bool) {
	if void {
		c.CountVoid(&j.world.Result.Coverage)
		return
	}
	c.CountJudged(&j.world.Result.Coverage)
}

// TrueTime returns the true time at which a node's clock shows an instant.
func (j oracleWorld) TrueTime(node int32, at effects.Time) effects.Time {
	return effects.Time(j.world.Nodes[node].InstantOf(at))
}

// nodeNameOf returns the name of a node, which people use beside its number.
func nodeNameOf(n *world.Node) string {
	if n.Custom {
		return customOf(n).Name
	}
	return world.NodeName(n.ID)
}

// tableVisitor is implemented by machines that report how full their tables are.
type tableVisitor interface {
	VisitTables(visit func(name string, n, most int))
}

// keepsAtRest is implemented by machines that report how much they keep at rest.
type keepsAtRest interface {
	VisitKeptTables(visit func(name string, n, most int))
}

var (
	checkTableLimits = oracle.NewCheck("S17", "tables of other machines, within their limits")
	checkTablesRest  = oracle.NewCheck("S17", "tables of other machines, at rest")
	checkTableShares = oracle.NewCheck("S18", "shares in tables of other machines, counted twice")
)

// shareCounter is implemented by machines whose tables are shared by classes of peers, and that can count again what
// each class has.
type shareCounter interface {
	RecountShares(r *table.Recount)
}

// shareRecount is the memory of a recount.
type shareRecount struct {
	recount table.Recount `snap:"scratch"`
}

// recountInterval is the number of steps between two recounts of a machine's shares. A wrong count stays wrong.
const recountInterval = 16

// tableOracles judge whether the tables of users' machines stay within their bounds and are empty at rest (S17), and
// whether the machines count the rows of each peer right (S18).
var tableOracles = []oracle.Oracle{oracle.New("tables", oracle.Promise("S17"), func(l *oracle.Subscriptions[shareRecount]) {
	oracle.On(l, func(s *shareRecount, c *oracle.Call, _ oracle.StepEnded) {
		w := c.SystemRun().(*trial)
		n := w.Nodes[c.Node()]
		if !n.Custom {
			return
		}
		w.CountJudged(checkTableLimits)
		w.checkTables(n)
		if t, ok := n.Machine.(shareCounter); ok && n.StepCount%recountInterval == 0 {
			w.checkShares(n, t, &s.recount)
		}
	})
	oracle.On(l, func(_ *shareRecount, c *oracle.Call, e world.NodeAtRest) {
		w := c.SystemRun().(*trial)
		t, ok := e.Node.Machine.(tableVisitor)
		if !ok || !e.Node.Custom {
			return
		}
		w.CountJudged(checkTablesRest)
		t.VisitTables(func(name string, k, _ int) {
			if k > 0 {
				w.FailCheck(checkTablesRest, "node %d has %d entries left in its table %s %s", e.Node.AsSubject(), k,
					oracle.Leftover{Node: e.Node.ID, Name: name}, e.When)
			}
		})
	})
})}

// checkShares checks that a machine's counts of the rows of each class match its tables.
func (w *trial) checkShares(n *world.Node, t shareCounter, r *table.Recount) {
	w.CountJudged(checkTableShares)
	r.Reset()
	t.RecountShares(r)
	for _, c := range r.Counts {
		if c.Counted != c.Actual {
			w.FailCheck(checkTableShares, "node %d counts %d %s in the shares of a peer, and there are %d", n.AsSubject(), c.Counted, c.Name,
				c.Actual)
			return // What follows a difference may be wrong as well.
		}
	}
}

// checkTables checks that the tables of a machine, including those that may keep entries at rest, are within their
// bounds.
func (w *trial) checkTables(n *world.Node) {
	check := func(name string, k, most int) {
		if k > most {
			w.FailCheck(checkTableLimits, "node %d has %d entries in its table %s, whose limit is %d", n.AsSubject(), k, name, most)
		}
	}
	if t, ok := n.Machine.(tableVisitor); ok {
		t.VisitTables(check)
	}
	if t, ok := n.Machine.(keepsAtRest); ok {
		t.VisitKeptTables(check)
	}
}

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/systems/pd/ledger"
	"github.com/kvferry/kvferry/sim/world"
)

// Ended is reported to oracles when a run is over and no promise was broken.
type Ended struct{ Result *Result }

var onEnded = oracle.NewHappening[Ended]()

// reportEnd reports that a run is over. The panel passes on nothing once a promise is broken.
func (w *trial) reportEnd() { onEnded.Report(&w.Panel, oracle.Nobody, Ended{&w.Result}) }

// Promise returns the sentence that states a property of docs/safety.md, or "" if the property is unknown.
func Promise(property string) string { return oracle.Promise(property) }

// empanel adds the oracles that judge a trial: the oracles of ranks, of the flows in use, of the system, and of the
// caller.
func (w *trial) empanel(o *Options) {
	systems := make([]string, w.cast.nodes())
	for i := range w.cast.own {
		systems[w.cast.ranks+i] = w.cast.own[i].system.Name
	}
	ranks, table := w.spare.ranks, w.spare.table
	if w.spare = (spare{}); ranks == nil {
		ranks = &ledger.Oracles{}
	}
	seats := []oracle.Seat{{Oracle: &ledger.Ledger, System: plan.PD, State: ranks}}
	add := func(oracles []oracle.Oracle, system string) {
		for i := range oracles {
			seats = append(seats, oracle.Seat{Oracle: &oracles[i], System: system})
		}
	}
	for _, f := range w.Flows {
		add(f.Oracles, f.Word)
	}
	if len(w.cast.own) > 0 {
		add(tables, oracle.Everywhere)
		for _, s := range o.System.all() {
			add(s.Oracles, s.Name)
		}
	}
	add(o.Oracles, oracle.Everywhere)
	w.Panel.Begin(judged{&w.World}, systems, seats, table)
	ranks.Begin(&w.Cluster, w.cast.nodes())
}

// ledger returns the memory of the ranks' oracles.
func (w *trial) ledger() *ledger.Oracles { return w.Panel.States[0].(*ledger.Oracles) }

// judged implements [oracle.World] for a world.
type judged struct{ w *world.World }

func (j judged) Now() effects.Time             { return effects.Time(j.w.Now) }
func (j judged) Clock(node int32) effects.Time { return j.w.Clock(j.w.Nodes[node]) }
func (j judged) Life(node int32) uint32        { return j.w.Nodes[node].Life }
func (j judged) Frozen(node int32) effects.Duration {
	return effects.Duration(j.w.Nodes[node].Frozen)
}
func (j judged) Called(node int32) string { return called(j.w.Nodes[node]) }
func (j judged) Sends(node int32) bool    { return j.w.Nodes[node].Sends() }
func (j judged) Break(name, promise, format string, args []any) {
	j.w.FailAs(name, promise, format, args...)
}

// Run returns the system of the run.
func (j judged) Run() any { return j.w.System }

// Count counts in the coverage that a check judged or was void.
func (j judged) Count(c oracle.Check, void bool) {
	at := pd.PointJudged
	if void {
		at = pd.PointVoid
	}
	j.w.Result.Coverage.Hit(at + coverage.Point(c))
}

// True returns the true time at which a node's clock shows an instant.
func (j judged) True(node int32, at effects.Time) effects.Time {
	return effects.Time(j.w.Nodes[node].When(at))
}

// called returns the name of a node, which people use beside its number.
func called(n *world.Node) string {
	if n.User {
		return user(n).Name
	}
	return world.LaneName(n.ID)
}

// tabled is implemented by machines that report how full their tables are.
type tabled interface {
	Tables(visit func(name string, n, most int))
}

// remembering is implemented by machines that report how much they keep at rest.
type remembering interface {
	Remembers(visit func(name string, n, most int))
}

// tableOracles judge whether the tables of users' machines stay within their bounds and are empty at rest (S17).
var tables = []oracle.Oracle{oracle.Of("tables", oracle.Promise("S17"), func(l *oracle.Listen[struct{}]) {
	oracle.On(l, func(_ *struct{}, c *oracle.Call, _ oracle.Stepped) {
		w := c.Run().(*trial)
		if n := w.Nodes[c.Node()]; n.User {
			w.bounded(n)
		}
	})
	oracle.On(l, func(_ *struct{}, c *oracle.Call, e world.Rested) {
		w := c.Run().(*trial)
		t, ok := e.Node.Machine.(tabled)
		if !ok || !e.Node.User {
			return
		}
		t.Tables(func(name string, k, _ int) {
			if k > 0 {
				w.Fail("S17", "node %d has %d left in its table %s %s", e.Node.It(), k,
					oracle.Left{Node: e.Node.ID, What: name}, e.When)
			}
		})
	})
})}

// bounded checks that the tables of a machine, including those that may keep entries at rest, are within their bounds.
func (w *trial) bounded(n *world.Node) {
	check := func(name string, k, most int) {
		if k > most {
			w.Fail("S17", "node %d has %d in its table %s, which holds at most %d", n.It(), k, name, most)
		}
	}
	if t, ok := n.Machine.(tabled); ok {
		t.Tables(check)
	}
	if t, ok := n.Machine.(remembering); ok {
		t.Remembers(check)
	}
}

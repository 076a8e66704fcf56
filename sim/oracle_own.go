package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Users' oracles: what they are told of a world, and what they may ask it.

// judge begins the oracles of a system.
func (w *trial) judge(s *System) {
	all := s.all()
	for i := range all {
		for _, o := range all[i].Oracles {
			w.users = append(w.users, o.Begin(all[i].Name))
		}
	}
}

// judgeFlows begins the oracles of flows that play.
func (w *trial) judgeFlows() {
	for _, f := range w.Flows {
		for _, o := range f.Oracles {
			w.users = append(w.users, o.Begin(f.Word))
		}
	}
}

// judged is a world as oracles know it.
type judged struct{ w *world.World }

func (j judged) Now() effects.Time             { return effects.Time(j.w.Now) }
func (j judged) Clock(node int32) effects.Time { return j.w.Clock(j.w.Nodes[node]) }
func (j judged) Life(node int32) uint32        { return j.w.Nodes[node].Life }
func (j judged) Frozen(node int32) effects.Duration {
	return effects.Duration(j.w.Nodes[node].Frozen)
}
func (j judged) Called(node int32) string { return called(j.w.Nodes[node]) }
func (j judged) Goes() bool               { return j.w.Failure == nil }
func (j judged) Break(name, promise, format string, args []any) {
	j.w.FailAs(name, promise, format, args...)
}

// Run is what systems made of the run.
func (j judged) Run() any { return j.w.Side }

// Count counts what checks did.
func (j judged) Count(c oracle.Check, void bool) {
	at := pd.PointJudged
	if void {
		at = pd.PointVoid
	}
	j.w.Result.Coverage.Hit(at + coverage.Point(c))
}

// True is when a node's clock shows an instant.
func (j judged) True(node int32, at effects.Time) effects.Time {
	return effects.Time(j.w.Nodes[node].When(at))
}

// called is what people call a node beside its number.
func called(n *world.Node) string {
	if n.User {
		return user(n).Name
	}
	return world.LaneName(n.ID)
}

// heardBy tells oracles of what a machine is given, or wants.
func (w *trial) heardBy(n *world.Node, what any) {
	if len(w.users) == 0 {
		return
	}
	c := oracle.NewCall(judged{&w.World}, n.ID)
	for i := range w.users {
		if j := &w.users[i]; hears(j, n) {
			j.Hear(&c, what)
		}
	}
}

// hears says whether a judge hears of a node: of those of its own system, and of ranks.
func hears(j *oracle.Judge, n *world.Node) bool { return !n.User || user(n).system.Name == j.System }

func (w *trial) tellDown(n *world.Node) {
	c := oracle.NewCall(judged{&w.World}, n.ID)
	for i := range w.users {
		if j := &w.users[i]; hears(j, n) {
			j.Down(&c)
		}
	}
}

func (w *trial) tellQuiet(n *world.Node) {
	c := oracle.NewCall(judged{&w.World}, n.ID)
	for i := range w.users {
		if j := &w.users[i]; hears(j, n) {
			j.Quiet(&c)
		}
	}
}

// tabled is a machine that shows how full its tables are.
type tabled interface {
	Tables(visit func(name string, n, most int))
}

// remembering is a machine that shows how much it keeps, also at rest.
type remembering interface {
	Remembers(visit func(name string, n, most int))
}

// boundedOwn checks the tables of a machine, and what else it keeps, after each step.
func (w *trial) boundedOwn(n *world.Node) {
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

// quietOwn checks that they are empty after all has come to rest.
func (w *trial) quietOwn(n *world.Node, when string) {
	t, ok := n.Machine.(tabled)
	if !ok {
		return
	}
	t.Tables(func(name string, k, _ int) {
		if k > 0 {
			w.Fail("S17", "node %d has %d left in its table %s %s", n.It(), k, name, when)
		}
	})
}

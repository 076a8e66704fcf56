package oracle

import (
	"fmt"
	"reflect"

	"github.com/kvferry/kvferry/effects"
)

// A Panel holds the oracles of a run. Everything that happens in the run is reported to the panel, which passes each
// report to the oracles that subscribed to this kind of report, in the order of the seats. The panel stops at the first
// broken promise. The zero value is a panel without oracles. A report costs an indirect call for each subscriber and
// allocates nothing.
type Panel struct {
	States   []State  // by seat: the memory of each oracle
	memories []State  `snap:"share"` // by table row: the part of States that the row's functions receive
	table    *Table   `snap:"share"`
	systems  []string `snap:"share"` // by node: the name of its system, or "" for a rank
	call     Call     `snap:"share"`
	stopped  bool     `snap:"share"` // a promise is broken; nothing more is passed on
}

// A Seat assigns an oracle to the nodes of a system and to all ranks.
type Seat struct {
	Oracle *Oracle
	// System is the name of the system, or [AllSystems] for all nodes.
	System string
	// State is memory that is ready for a new run. If State is nil, the oracle starts with new memory.
	State State
}

// AllSystems is the system name of oracles that receive the reports of all nodes.
const AllSystems = "*"

// A Table maps each kind of report to the parts that subscribed to it. A table is immutable, so runs with the same
// oracles share a table.
type Table struct {
	oracles   []*part  // by seat: the first part of each oracle, which identifies the oracle
	systems   []string // by seat
	rows      []tableRow
	audiences []any                       // by number of the kind: an *audience[E], or nil if nothing subscribed to the kind
	dynamic   map[uintptr]dynamicAudience // by the type of an event or effect
}

// A tableRow is a part of an oracle in the table.
type tableRow struct {
	name, promise string
	system        string
	oracle        int // index of the oracle in the panel
	memory        func(State) State
}

// StartRun resets the panel for a new run. Systems names the system of each node ("" for ranks). The last argument is
// nil or the table of an earlier run, which is used again if the seats are the same.
func (p *Panel) StartRun(w World, systems []string, seats []Seat, earlier *Table) {
	if !earlier.isFor(seats) {
		earlier = newTable(seats)
	}
	*p = Panel{systems: systems, call: Call{world: w, table: earlier}, table: earlier, States: make([]State, len(seats))}
	for i := range seats {
		if p.States[i] = seats[i].State; p.States[i] == nil {
			p.States[i] = seats[i].Oracle.begin()
		}
	}
	p.bindMemories()
}

// bindMemories looks up the memory that the functions of each row receive.
func (p *Panel) bindMemories() {
	p.memories = make([]State, len(p.table.rows))
	for i := range p.table.rows {
		r := &p.table.rows[i]
		p.memories[i] = r.memory(p.States[r.oracle])
	}
}

// Table returns the panel's table, which later runs with the same oracles can share.
func (p *Panel) Table() *Table { return p.table }

// newTable builds the table of the given seats. Parts without subscriptions get no row.
func newTable(seats []Seat) *Table {
	t := &Table{dynamic: map[uintptr]dynamicAudience{}}
	for i, s := range seats {
		t.oracles, t.systems = append(t.oracles, &s.Oracle.parts[0]), append(t.systems, s.System)
		for k := range s.Oracle.parts {
			x := &s.Oracle.parts[k]
			if len(x.subscriptions) == 0 {
				continue
			}
			t.rows = append(t.rows, tableRow{s.Oracle.Name, s.Oracle.Promise, s.System, i, x.memory})
			for _, h := range x.subscriptions {
				h.addToTable(t, int32(len(t.rows)-1))
			}
		}
	}
	return t
}

// isFor reports whether the table was built for the given seats.
func (t *Table) isFor(seats []Seat) bool {
	if t == nil || len(t.oracles) != len(seats) {
		return false
	}
	for i := range seats {
		if t.oracles[i] != &seats[i].Oracle.parts[0] || t.systems[i] != seats[i].System {
			return false
		}
	}
	return true
}

// AttachRun prepares a copy of a panel to judge the run w.
func (p *Panel) AttachRun(w World) {
	p.call = Call{world: w, table: p.table}
	p.bindMemories()
}

// StopReports stops the panel from passing on further reports, because a promise is broken.
func (p *Panel) StopReports() { p.stopped = true }

// Report passes e to the subscribers of the happening. Node is the node where the event occurred, or [NoNode] if the
// event belongs to no particular node.
func (h Happening[E]) Report(p *Panel, node int32, e E) {
	if t := p.table; t != nil && h.kind < len(t.audiences) {
		if a, ok := t.audiences[h.kind].(*audience[E]); ok {
			a.deliver(p, node, e)
		}
	}
}

// ReportEvent passes on an event that is about to be passed to the machine of a node.
func (p *Panel) ReportEvent(node int32, ev effects.Event) { p.reportDynamic(node, ev) }

// ReportEffect passes on an effect that is about to be carried out for the machine of a node.
func (p *Panel) ReportEffect(node int32, e effects.Effect) { p.reportDynamic(node, e) }

func (p *Panel) reportDynamic(node int32, e any) {
	if p.table == nil {
		return
	}
	if a := p.table.dynamic[typeID(reflect.TypeOf(e))]; a != nil {
		a.deliverDynamic(p, node, e)
	}
}

// typeID returns a number that is unique to the type, and is a faster map key than a [reflect.Type].
func typeID(t reflect.Type) uintptr { return reflect.ValueOf(t).Pointer() }

// A subscription adds a row of a table to the audience of a kind of report.
type subscription interface{ addToTable(t *Table, row int32) }

// A subscriber is a subscription to reports of type E.
type subscriber[E any] struct {
	kind   int
	handle func(State, *Call, E)
}

func (s subscriber[E]) addToTable(t *Table, row int32) {
	typ := reflect.TypeFor[E]()
	reportKinds.Lock()
	reported, count := reportKinds.reported[s.kind], len(reportKinds.numbers)
	reportKinds.Unlock()
	if !reported {
		panic(fmt.Sprintf("BUG: oracle %s subscribes to %v, which nothing reports", t.rows[row].name, typ))
	}
	for len(t.audiences) < count {
		t.audiences = append(t.audiences, nil)
	}
	a, ok := t.audiences[s.kind].(*audience[E])
	if !ok {
		a = &audience[E]{}
		t.audiences[s.kind], t.dynamic[typeID(typ)] = a, a
	}
	a.listeners = append(a.listeners, listener[E]{row, s.handle})
}

// An audience lists the rows that receive one kind of report, in order.
type audience[E any] struct{ listeners []listener[E] }

type listener[E any] struct {
	row    int32
	handle func(State, *Call, E)
}

// A dynamicAudience is an audience of events or effects. The reporter does not know their static type.
type dynamicAudience interface {
	deliverDynamic(p *Panel, node int32, e any)
}

func (a *audience[E]) deliverDynamic(p *Panel, node int32, e any) { a.deliver(p, node, e.(E)) }

func (a *audience[E]) deliver(p *Panel, node int32, e E) {
	system, c := "", &p.call
	if node >= 0 {
		system = p.systems[node]
	}
	outerNode, outerRow := c.node, c.row // The function may cause a nested report.
	c.node = node
	memories := p.memories
	for i := range a.listeners {
		if p.stopped {
			break
		}
		l := &a.listeners[i]
		if system != "" && !p.table.rows[l.row].receivesFrom(system) {
			continue
		}
		c.row = l.row
		l.handle(memories[l.row], c, e)
	}
	c.node, c.row = outerNode, outerRow
}

// receivesFrom reports whether the row receives reports about the user nodes of a system.
func (r *tableRow) receivesFrom(system string) bool {
	return r.system == system || r.system == AllSystems
}

// A World provides what a [Call] can ask about the run.
type World interface {
	// Now returns the true time since the start of the run.
	Now() effects.Time
	// TrueTime converts a reading of the node's clock into true time.
	TrueTime(node int32, at effects.Time) effects.Time
	// LocalTime returns the reading of the node's own clock.
	LocalTime(node int32) effects.Time
	// NodeName returns the name of the node in its system.
	NodeName(node int32) string
	// Incarnation returns the number of times that the node was started before.
	Incarnation(node int32) uint32
	// FrozenTime returns the total time for which the node's process was frozen, by the node's own clock.
	FrozenTime(node int32) effects.Duration
	// IsSender reports whether the node is a rank that sends chunks.
	IsSender(node int32) bool
	// FailRun records the broken promise and ends the run.
	FailRun(name, promise, format string, args []any)
	// CountCheck counts that a check judged, or that the check was void.
	CountCheck(c Check, void bool)
	// SystemRun returns the run as its system knows it.
	SystemRun() any
}

// A Call is the context of a report to an oracle: the node and the time. A Call is valid until the subscribed function
// returns.
type Call struct {
	world World
	node  int32
	row   int32 // of the oracle that receives the report
	table *Table
}

// Node returns the node where the reported event occurred. Plans name the nodes n0, n1 and so on.
func (c *Call) Node() Node { return Node(c.node) }

// NodeName returns the name of the node in the node's system.
func (c *Call) NodeName() string { return c.world.NodeName(c.node) }

// Incarnation returns the number of times that the node was started before, which identifies the incarnation.
func (c *Call) Incarnation() uint32 { return c.world.Incarnation(c.node) }

// FrozenTime returns the total time for which the node's process was frozen, by its own clock, over all its incarnations,
// including the rest of a pause that is still going on.
func (c *Call) FrozenTime() effects.Duration { return c.world.FrozenTime(c.node) }

// IsSender reports whether the node is a rank that sends chunks.
func (c *Call) IsSender() bool { return c.world.IsSender(c.node) }

// Now returns the true time, which starts at 0 with the run. No machine knows the true time.
func (c *Call) Now() effects.Time { return c.world.Now() }

// LocalTime returns the reading of the node's own clock.
func (c *Call) LocalTime() effects.Time { return c.world.LocalTime(c.node) }

// TrueTime returns the true time at which the clock of a node shows the instant at. Clocks start at arbitrary values
// and run at slightly different rates.
func (c *Call) TrueTime(node Node, at effects.Time) effects.Time {
	return c.world.TrueTime(int32(node), at)
}

// Fail reports that the oracle's promise is broken, which ends the run. Subjects among the arguments determine which
// pages, grants and transfers a trace shows.
func (c *Call) Fail(format string, args ...any) {
	c.world.FailRun(c.table.rows[c.row].name, c.table.rows[c.row].promise, format, args)
}

// SystemRun returns the run as the simulated system knows it. The method is for oracles that belong to a system and
// know that type.
func (c *Call) SystemRun() any { return c.world.SystemRun() }

// CountJudged counts that the given checks have judged. If a promise is broken, the oracle also calls FailCheck.
func (c *Call) CountJudged(checks ...Check) {
	for _, k := range checks {
		c.world.CountCheck(k, false)
	}
}

// CountVoid counts that an occasion for the check came, but that the check could not judge.
func (c *Call) CountVoid(k Check) { c.world.CountCheck(k, true) }

// FailCheck reports that the property of the check, as docs/safety.md states it, is broken. This ends the run.
func (c *Call) FailCheck(k Check, format string, args ...any) {
	c.world.FailRun(k.Property(), Promise(k.Property()), format, args)
}

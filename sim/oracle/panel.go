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
	over     bool     `snap:"share"` // a promise is broken; nothing more is passed on
}

// A Seat assigns an oracle to the nodes of a system and to all ranks.
type Seat struct {
	Oracle *Oracle
	// System is the name of the system, or [Everywhere] for all nodes.
	System string
	// State is memory that is ready for a new run. If State is nil, the oracle starts with new memory.
	State State
}

// Everywhere is the system name of oracles that receive the reports of all nodes.
const Everywhere = "*"

// A Table maps each kind of report to the parts that subscribed to it. A table is immutable, so runs with the same
// oracles share a table.
type Table struct {
	of       []*part  // by seat: the first part of each oracle, which identifies the oracle
	systems  []string // by seat
	rows     []row
	audience []any              // by number of the kind: an *audience[E], or nil if nothing subscribed to the kind
	dynamic  map[uintptr]hearer // by the type of an event or effect
}

// A row is a part of an oracle in the table.
type row struct {
	name, promise string
	system        string
	oracle        int // number of the oracle's seat
	memory        func(State) State
}

// Begin resets the panel for a new run. Systems names the system of each node ("" for ranks). The last argument is nil
// or the table of an earlier run, which is used again if the seats are the same.
func (p *Panel) Begin(w World, systems []string, seats []Seat, before *Table) {
	if !before.isOf(seats) {
		before = newTable(seats)
	}
	*p = Panel{systems: systems, call: Call{w: w, from: before}, table: before, States: make([]State, len(seats))}
	for i := range seats {
		if p.States[i] = seats[i].State; p.States[i] == nil {
			p.States[i] = seats[i].Oracle.begin()
		}
	}
	p.remember()
}

// remember looks up the memory that the functions of each row receive.
func (p *Panel) remember() {
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
	t := &Table{dynamic: map[uintptr]hearer{}}
	for i, s := range seats {
		t.of, t.systems = append(t.of, &s.Oracle.parts[0]), append(t.systems, s.System)
		for k := range s.Oracle.parts {
			x := &s.Oracle.parts[k]
			if len(x.hears) == 0 {
				continue
			}
			t.rows = append(t.rows, row{s.Oracle.Name, s.Oracle.Promise, s.System, i, x.memory})
			for _, h := range x.hears {
				h.join(t, int32(len(t.rows)-1))
			}
		}
	}
	return t
}

// isOf reports whether the table was built for the given seats.
func (t *Table) isOf(seats []Seat) bool {
	if t == nil || len(t.of) != len(seats) {
		return false
	}
	for i := range seats {
		if t.of[i] != &seats[i].Oracle.parts[0] || t.systems[i] != seats[i].System {
			return false
		}
	}
	return true
}

// Cloned prepares a copy of a panel to judge the run w.
func (p *Panel) Cloned(w World) {
	p.call = Call{w: w, from: p.table}
	p.remember()
}

// End stops the panel from passing on further reports, because a promise is broken.
func (p *Panel) End() { p.over = true }

// Report passes e to the subscribers of the happening. Node is the node where the event occurred, or [Nobody] if the
// event belongs to no particular node.
func (h Happening[E]) Report(p *Panel, node int32, e E) {
	if t := p.table; t != nil && h.number < len(t.audience) {
		if a, ok := t.audience[h.number].(*audience[E]); ok {
			a.hear(p, node, e)
		}
	}
}

// ReportEvent passes on an event that is about to be passed to the machine of a node.
func (p *Panel) ReportEvent(node int32, ev effects.Event) { p.reportAny(node, ev) }

// ReportEffect passes on an effect that is about to be carried out for the machine of a node.
func (p *Panel) ReportEffect(node int32, e effects.Effect) { p.reportAny(node, e) }

func (p *Panel) reportAny(node int32, e any) {
	if p.table == nil {
		return
	}
	if a := p.table.dynamic[identity(reflect.TypeOf(e))]; a != nil {
		a.hearAny(p, node, e)
	}
}

// typeID returns a number that is unique to the type, and is a faster map key than a [reflect.Type].
func identity(t reflect.Type) uintptr { return reflect.ValueOf(t).Pointer() }

// A subscription adds a row of a table to the audience of a kind of report.
type subscription interface{ join(t *Table, row int32) }

// A subscriber is a subscription to reports of type E.
type subscriber[E any] struct {
	number int
	hear   func(State, *Call, E)
}

func (s subscriber[E]) join(t *Table, row int32) {
	of := reflect.TypeFor[E]()
	kinds.Lock()
	reported, count := kinds.reported[s.number], len(kinds.numbers)
	kinds.Unlock()
	if !reported {
		panic(fmt.Sprintf("BUG: oracle %s subscribes to %v, which nothing reports", t.rows[row].name, of))
	}
	for len(t.audience) < count {
		t.audience = append(t.audience, nil)
	}
	a, ok := t.audience[s.number].(*audience[E])
	if !ok {
		a = &audience[E]{}
		t.audience[s.number], t.dynamic[identity(of)] = a, a
	}
	a.listeners = append(a.listeners, listener[E]{row, s.hear})
}

// An audience lists the rows that receive one kind of report, in order.
type audience[E any] struct{ listeners []listener[E] }

type listener[E any] struct {
	row  int32
	hear func(State, *Call, E)
}

// A hearer is an audience of events or effects. The reporter does not know their static type.
type hearer interface {
	hearAny(p *Panel, node int32, e any)
}

func (a *audience[E]) hearAny(p *Panel, node int32, e any) { a.hear(p, node, e.(E)) }

func (a *audience[E]) hear(p *Panel, node int32, e E) {
	system, c := "", &p.call
	if node >= 0 {
		system = p.systems[node]
	}
	at, of := c.node, c.row // The function may cause a nested report.
	c.node = node
	memories := p.memories
	for i := range a.listeners {
		if p.over {
			break
		}
		l := &a.listeners[i]
		if system != "" && !p.table.rows[l.row].hears(system) {
			continue
		}
		c.row = l.row
		l.hear(memories[l.row], c, e)
	}
	c.node, c.row = at, of
}

// hears reports whether the row receives reports about the user nodes of a system.
func (r *row) hears(system string) bool { return r.system == system || r.system == Everywhere }

// A World provides what a [Call] can ask about the run.
type World interface {
	// Now returns the true time since the start of the run.
	Now() effects.Time
	// True converts a reading of the node's clock into true time.
	True(node int32, at effects.Time) effects.Time
	// Clock returns the reading of the node's own clock.
	Clock(node int32) effects.Time
	// Called returns the name of the node in its system.
	Called(node int32) string
	// Life returns the number of times that the node was started before.
	Life(node int32) uint32
	// Frozen returns the total time for which the node's process was frozen.
	Frozen(node int32) effects.Duration
	// Sends reports whether the node is a rank that sends chunks.
	Sends(node int32) bool
	// Break records the broken promise and ends the run.
	Break(name, promise, format string, args []any)
	// CountCheck counts that a check judged, or that the check was void.
	Count(c Check, void bool)
	// Run returns the run as its system knows it.
	Run() any
}

// A Call is the context of a report to an oracle: the node and the time. A Call is valid until the subscribed function
// returns.
type Call struct {
	w    World
	node int32
	row  int32 // of the oracle that receives the report
	from *Table
}

// Node returns the node where the reported event occurred. Plans name the nodes n0, n1 and so on.
func (c *Call) Node() Node { return Node(c.node) }

// NodeName returns the name of the node in the node's system.
func (c *Call) NodeName() string { return c.w.Called(c.node) }

// Life returns the number of times that the node was started before, which identifies the incarnation.
func (c *Call) Life() uint32 { return c.w.Life(c.node) }

// Frozen returns the total time for which the node's process was frozen, over all its incarnations, including the rest
// of a pause that is still going on.
func (c *Call) Frozen() effects.Duration { return c.w.Frozen(c.node) }

// Sends reports whether the node is a rank that sends chunks.
func (c *Call) Sends() bool { return c.w.Sends(c.node) }

// Now returns the true time, which starts at 0 with the run. No machine knows the true time.
func (c *Call) Now() effects.Time { return c.w.Now() }

// Clock returns the reading of the node's own clock.
func (c *Call) Clock() effects.Time { return c.w.Clock(c.node) }

// True returns the true time at which the clock of a node shows the instant at. Clocks start at arbitrary values and
// run at slightly different rates.
func (c *Call) True(node Node, at effects.Time) effects.Time { return c.w.True(int32(node), at) }

// Fail reports that the oracle's promise is broken, which ends the run. Subjects among the arguments determine which
// pages, grants and transfers a trace shows.
func (c *Call) Fail(format string, args ...any) {
	c.w.Break(c.from.rows[c.row].name, c.from.rows[c.row].promise, format, args)
}

// SystemRun returns the run as the simulated system knows it. The method is for oracles that belong to a system and
// know that type.
func (c *Call) Run() any { return c.w.Run() }

// CountJudged counts that the given checks have judged. If a promise is broken, the oracle also calls FailCheck.
func (c *Call) Judged(checks ...Check) {
	for _, k := range checks {
		c.w.Count(k, false)
	}
}

// Void counts that an occasion for the check came, but that the check could not judge.
func (c *Call) Void(k Check) { c.w.Count(k, true) }

// Breaks reports that the property of the check, as docs/safety.md states it, is broken. This ends the run.
func (c *Call) Breaks(k Check, format string, args ...any) {
	c.w.Break(k.Property(), Promise(k.Property()), format, args)
}

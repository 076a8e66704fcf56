package oracle

import (
	"fmt"
	"reflect"

	"github.com/kvferry/kvferry/effects"
)

// A Panel is the oracles of one run. Whatever happens is reported to it, and it passes each report to the oracles that
// subscribed to its kind, in the order of their seats. It stops at the first broken promise. Its zero value has no
// oracles. A report costs an indirect call for each subscriber and allocates nothing.
type Panel struct {
	States   []State  // what each oracle remembers
	memories []State  `snap:"share"` // by row of the table: the part of States that its functions are given
	table    *Table   `snap:"share"`
	systems  []string `snap:"share"` // by node: the system that it is of; "": it is a rank
	call     Call     `snap:"share"`
	over     bool     `snap:"share"` // a promise is broken
}

// A Seat has an oracle judge the nodes of a system, and ranks.
type Seat struct {
	Oracle *Oracle
	System string // [Everywhere]: all nodes
	State  State  // memory of the oracle that is ready for a new run; nil: it begins with its own
}

// Everywhere is the system of oracles that hear of all nodes.
const Everywhere = "*"

// A Table says which parts of which oracles subscribed to what. It never changes, so runs with the same oracles share
// it.
type Table struct {
	of       []*part // the first part of each oracle, which tells oracles apart
	systems  []string
	rows     []row
	audience []any              // by number of the kind: *audience[E]; nil: nobody subscribed
	dynamic  map[uintptr]hearer // by type of event or effect
}

// A row is a part of an oracle.
type row struct {
	name, promise string
	system        string
	oracle        int // its seat
	memory        func(State) State
}

// Begin empties the panel for a run, in which each node is of a system. Before is the table of an earlier run, or nil.
func (p *Panel) Begin(w World, systems []string, seats []Seat, before *Table) {
	if !before.isOf(seats) {
		before = newTable(seats)
	}
	*p = Panel{systems: systems, call: Call{w: w}, table: before, States: make([]State, len(seats))}
	for i := range seats {
		if p.States[i] = seats[i].State; p.States[i] == nil {
			p.States[i] = seats[i].Oracle.begin()
		}
	}
	p.remember()
}

// remember finds what the functions of each part are given.
func (p *Panel) remember() {
	p.memories = make([]State, len(p.table.rows))
	for i := range p.table.rows {
		r := &p.table.rows[i]
		p.memories[i] = r.memory(p.States[r.oracle])
	}
}

// Table returns the panel's table, for later runs with the same oracles.
func (p *Panel) Table() *Table { return p.table }

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

// isOf reports whether the table is of these oracles.
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

// Cloned tells a copy of a panel that it judges the run w.
func (p *Panel) Cloned(w World) {
	p.call = Call{w: w}
	p.remember()
}

// End has the panel pass on nothing more: a promise is broken.
func (p *Panel) End() { p.over = true }

// Report passes on what happened at a node; [Nobody] if it is of none.
func (h Happening[E]) Report(p *Panel, node int32, e E) {
	if t := p.table; t != nil && h.number < len(t.audience) {
		if a, ok := t.audience[h.number].(*audience[E]); ok {
			a.hear(p, node, e)
		}
	}
}

// ReportEvent passes on an event that a node's machine is about to be given.
func (p *Panel) ReportEvent(node int32, ev effects.Event) { p.reportAny(node, ev) }

// ReportEffect passes on an effect that is about to be carried out for a node's machine.
func (p *Panel) ReportEffect(node int32, e effects.Effect) { p.reportAny(node, e) }

func (p *Panel) reportAny(node int32, e any) {
	if p.table == nil {
		return
	}
	if a := p.table.dynamic[identity(reflect.TypeOf(e))]; a != nil {
		a.hearAny(p, node, e)
	}
}

// identity is a number that no other type has. It is a faster key than a [reflect.Type].
func identity(t reflect.Type) uintptr { return reflect.ValueOf(t).Pointer() }

// A subscription has a row of a table hear of one kind.
type subscription interface{ join(t *Table, row int32) }

// A subscriber is a subscription to an E.
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

// An audience is all rows that hear of one kind, in order.
type audience[E any] struct{ listeners []listener[E] }

type listener[E any] struct {
	row  int32
	hear func(State, *Call, E)
}

// A hearer is an audience of events or effects, whose type is known only when one is there.
type hearer interface {
	hearAny(p *Panel, node int32, e any)
}

func (a *audience[E]) hearAny(p *Panel, node int32, e any) { a.hear(p, node, e.(E)) }

func (a *audience[E]) hear(p *Panel, node int32, e E) {
	system, c := "", &p.call
	if node >= 0 {
		system = p.systems[node]
	}
	before := *c // One report may lead to another.
	c.node = node
	rows, memories := p.table.rows, p.memories
	for i := range a.listeners {
		if p.over {
			break
		}
		l := &a.listeners[i]
		r := &rows[l.row]
		if system != "" && system != r.system && r.system != Everywhere {
			continue
		}
		c.row = r
		l.hear(memories[l.row], c, e)
	}
	*c = before
}

// A World is what a call knows of the run.
type World interface {
	Now() effects.Time                             // true time
	True(node int32, at effects.Time) effects.Time // what a node's clock shows, in true time
	Clock(node int32) effects.Time
	Called(node int32) string
	Life(node int32) uint32
	Frozen(node int32) effects.Duration
	Sends(node int32) bool
	Break(name, promise, format string, args []any)
	Count(c Check, void bool) // that it judged, or was void
	Run() any                 // the run, as its system knows it
}

// A Call is one report to an oracle: it says at which node and when. It is valid until the function returns.
type Call struct {
	w    World
	node int32
	row  *row // of the oracle that is told
}

// Node is where it happens: in plans n0, n1 and so on.
func (c *Call) Node() Node { return Node(c.node) }

// NodeName is what its system calls the node.
func (c *Call) NodeName() string { return c.w.Called(c.node) }

// Life is how often the node was started before.
func (c *Call) Life() uint32 { return c.w.Life(c.node) }

// Frozen is how long the node's process was frozen until now, in all its incarnations, including the rest of a pause
// that it is in.
func (c *Call) Frozen() effects.Duration { return c.w.Frozen(c.node) }

// Sends reports whether the node is a rank that sends chunks.
func (c *Call) Sends() bool { return c.w.Sends(c.node) }

// Now is true time, from 0 as the run begins: no machine knows it.
func (c *Call) Now() effects.Time { return c.w.Now() }

// Clock is what the node's own clock shows.
func (c *Call) Clock() effects.Time { return c.w.Clock(c.node) }

// True is when a node's clock shows an instant, in true time: clocks start anywhere and run apart.
func (c *Call) True(node Node, at effects.Time) effects.Time { return c.w.True(int32(node), at) }

// Fail says that the oracle's promise is broken, which ends the run. Subjects among the arguments say what a trace is
// to show.
func (c *Call) Fail(format string, args ...any) {
	c.w.Break(c.row.name, c.row.promise, format, args)
}

// Run is the run as its system knows it, for oracles that come with a system and know its type.
func (c *Call) Run() any { return c.w.Run() }

// Judged counts that checks have judged: what they look at is as was promised, or else the oracle calls Breaks.
func (c *Call) Judged(checks ...Check) {
	for _, k := range checks {
		c.w.Count(k, false)
	}
}

// Void counts that an occasion for a check came and that nothing could be said.
func (c *Call) Void(k Check) { c.w.Count(k, true) }

// Breaks says that what a check judges is not as docs/safety.md promises, which ends the run.
func (c *Call) Breaks(k Check, format string, args ...any) {
	c.w.Break(k.Property(), Promise(k.Property()), format, args)
}

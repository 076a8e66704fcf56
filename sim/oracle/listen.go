package oracle

import (
	"fmt"
	"reflect"

	"github.com/kvferry/kvferry/effects"
)

// An Oracle is a promise, and who judges whether it is kept: a value that [Of] makes and that any number of runs may
// have at the same time.
type Oracle struct {
	Name    string // how failures call it; none of docs/safety.md
	Promise string // what it says, in a sentence
	begin   func() Judge
}

// Of makes an oracle that remembers an S in each run, which begins as the zero S. It must be a plain tree: structs,
// slices, maps, pointers, strings and numbers, no functions and channels. So [sim.Explore] can copy it with its world
// and tell worlds apart by it. An [effects.Time] in it counts by its distance from now there.
//
// Listen is called once and says what the oracle hears, by [OnEvent], [OnEffect], [Listen.Down] and [Listen.Quiet]. The
// functions that it gives must remember nothing but the S: they are called in many runs at once. They hear the nodes of
// their own system, and the ranks beside those.
func Of[S any](name, promise string, listen func(l *Listen[S])) Oracle {
	l := &Listen[S]{heard: map[reflect.Type][]func(State, *Call, any){}}
	listen(l)
	return Oracle{Name: name, Promise: promise, begin: func() Judge {
		return Judge{Name: name, Promise: promise, State: new(S),
			Hears: &Hearing{heard: l.heard, down: l.down, quiet: l.quiet}}
	}}
}

// Begin makes its judge for one run, of a system. Runs call it.
func (o Oracle) Begin(system string) Judge {
	j := o.begin()
	j.System = system
	return j
}

// Listen is what an oracle hears.
type Listen[S any] struct {
	heard       map[reflect.Type][]func(State, *Call, any)
	down, quiet []func(State, *Call)
}

// OnEvent hears events of one type, as their machines are given them. They are borrowed.
func OnEvent[E effects.Event, S any](l *Listen[S], f func(s *S, c *Call, e E)) { on(l, f) }

// OnEffect hears effects of one type, just before they are carried out. They are borrowed.
func OnEffect[E effects.Effect, S any](l *Listen[S], f func(s *S, c *Call, e E)) { on(l, f) }

func on[E, S any](l *Listen[S], f func(s *S, c *Call, e E)) {
	t := reflect.TypeFor[E]()
	l.heard[t] = append(l.heard[t], func(s State, c *Call, e any) { f(s.(*S), c, e.(E)) })
}

// Down hears that the life of a node ends, and all that it remembers.
func (l *Listen[S]) Down(f func(s *S, c *Call)) { l.down = append(l.down, of(f)) }

// Quiet hears, once for each node, that every command has ended and that nothing is under way any more.
func (l *Listen[S]) Quiet(f func(s *S, c *Call)) { l.quiet = append(l.quiet, of(f)) }

func of[S any](f func(s *S, c *Call)) func(State, *Call) {
	return func(s State, c *Call) { f(s.(*S), c) }
}

// State is what a judge remembers: a pointer to the S of its oracle.
type State any

// A Judge is an oracle in one run.
type Judge struct {
	Name, Promise string
	System        string // whose nodes it hears
	State         State
	Hears         *Hearing `snap:"share"`
}

// Hearing is what a judge hears; it never changes.
type Hearing struct {
	heard       map[reflect.Type][]func(State, *Call, any)
	down, quiet []func(State, *Call)
}

// Hear tells the judge of an event or an effect.
func (j *Judge) Hear(c *Call, e any) {
	for _, f := range j.Hears.heard[reflect.TypeOf(e)] {
		if c.judge = j; c.w.Goes() {
			f(j.State, c, e)
		}
	}
}

// Down tells it that a life has ended.
func (j *Judge) Down(c *Call) { j.tell(c, j.Hears.down) }

// Quiet tells it that a node has come to rest.
func (j *Judge) Quiet(c *Call) { j.tell(c, j.Hears.quiet) }

func (j *Judge) tell(c *Call, all []func(State, *Call)) {
	for _, f := range all {
		if c.judge = j; c.w.Goes() {
			f(j.State, c)
		}
	}
}

// A World is what a call knows of the run.
type World interface {
	Now() effects.Time                             // true time
	True(node int32, at effects.Time) effects.Time // what a node's clock shows, in true time
	Clock(node int32) effects.Time
	Called(node int32) string
	Life(node int32) uint32
	Frozen(node int32) effects.Duration
	Goes() bool // no promise is broken yet
	Break(name, promise, format string, args []any)
	Count(c Check, void bool) // that it judged, or was void
	Run() any                 // the run, as its system knows it
}

// A Call is what an oracle is told of: something at one node, at one instant. It holds until the function returns.
type Call struct {
	w     World
	node  int32
	judge *Judge
}

// NewCall is a call about a node. Worlds make them.
func NewCall(w World, node int32) Call { return Call{w: w, node: node} }

// Node is where it happens: in plans n0, n1 and so on.
func (c *Call) Node() Node { return Node(c.node) }

// NodeName is what its system calls the node.
func (c *Call) NodeName() string { return c.w.Called(c.node) }

// Life is how often the node was started before.
func (c *Call) Life() uint32 { return c.w.Life(c.node) }

// Frozen is how long the node's process was frozen until now, in all its lives, including the rest of what it is in.
func (c *Call) Frozen() effects.Duration { return c.w.Frozen(c.node) }

// Now is true time, from 0 as the run begins: no machine knows it.
func (c *Call) Now() effects.Time { return c.w.Now() }

// Clock is what the node's own clock shows.
func (c *Call) Clock() effects.Time { return c.w.Clock(c.node) }

// True is when a node's clock shows an instant, in true time: clocks start anywhere and run apart.
func (c *Call) True(node Node, at effects.Time) effects.Time { return c.w.True(int32(node), at) }

// Fail says that the promise is broken, which ends the run. Subjects among the arguments say what a trace is to show.
func (c *Call) Fail(format string, args ...any) {
	c.w.Break(c.judge.Name, c.judge.Promise, format, args)
}

// Run is the run as its system knows it: for oracles that a system brings, and who knows its type.
func (c *Call) Run() any { return c.w.Run() }

// Judged counts that checks say something: that what they look at is as was promised, or else they break.
func (c *Call) Judged(checks ...Check) {
	for _, k := range checks {
		c.w.Count(k, false)
	}
}

// Void counts that a check has nothing to say where it might have had.
func (c *Call) Void(k Check) { c.w.Count(k, true) }

// Breaks says that what a check judges is not as docs/safety.md promises, which ends the run.
func (c *Call) Breaks(k Check, format string, args ...any) {
	c.w.Break(k.Property(), Promise(k.Property()), format, args)
}

// String is the oracle in a sentence.
func (o Oracle) String() string { return fmt.Sprintf("%s: %s", o.Name, o.Promise) }

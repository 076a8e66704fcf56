package oracle

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// An Oracle judges whether one promise is kept. [Of] makes one; any number of runs may use it at the same time.
type Oracle struct {
	Name    string // what failures call it; not the name of a property in docs/safety.md
	Promise string // what it says, in a sentence
	begin   func() State
	parts   []part
}

// A part of an oracle has a memory and subscriptions of its own. An oracle has one, unless it calls [Part].
type part struct {
	memory func(State) State // finds the part's memory in the oracle's
	hears  []subscription
}

// State is what an oracle remembers in one run: a pointer to the S of its [Of].
type State any

// Of makes an oracle that remembers an S in each run, which begins as the zero S. S must be a plain tree: structs,
// slices, maps, pointers, strings and numbers, no functions and channels. So [sim.Explore] can copy it with its world
// and tell worlds apart by it. An [effects.Time] in it counts by its distance from now there.
//
// Listen is called once and subscribes with [On] to what the oracle has to know. The functions that it subscribes must
// remember nothing but the S, because many runs call them at once. They hear of the nodes of their own system, and of
// the ranks beside those.
func Of[S any](name, promise string, listen func(l *Listen[S])) Oracle {
	o := Oracle{Name: name, Promise: promise, begin: func() State { return new(S) },
		parts: []part{{memory: func(s State) State { return s }}}}
	listen(&Listen[S]{&o, 0})
	return o
}

// Listen collects the subscriptions of an oracle that remembers an S.
type Listen[S any] struct {
	oracle *Oracle
	part   int
}

// Part returns where a part of an oracle subscribes that remembers a P within the oracle's S. Oracles that read each
// other's records are parts of one: see package ledger. Of one happening they hear in the order in which they were
// made.
func Part[P, S any](l *Listen[S], at func(*S) *P) *Listen[P] {
	outer := l.oracle.parts[l.part].memory
	l.oracle.parts = append(l.oracle.parts, part{memory: func(s State) State { return at(outer(s).(*S)) }})
	return &Listen[P]{l.oracle, len(l.oracle.parts) - 1}
}

// On subscribes to what E stands for. E is the pointer type of an event of package effects, which is heard just before
// a machine is given it; or of an effect, heard just before it is carried out; or a happening: [Stepped], [Ended],
// [Down] or [Quiet], and for oracles that come with the simulator those of sim/world and sim/systems/pd. What e points
// to is borrowed: it may change when the function has returned.
func On[E, S any](l *Listen[S], hear func(s *S, c *Call, e E)) {
	p := &l.oracle.parts[l.part]
	p.hears = append(p.hears, subscriber[E]{number[E](), func(s State, c *Call, e E) { hear(s.(*S), c, e) }})
}

// String is the oracle in a sentence.
func (o Oracle) String() string { return fmt.Sprintf("%s: %s", o.Name, o.Promise) }

// A Happening is a kind of thing that oracles can subscribe to. Each value is an E. The package in which it happens
// declares it once, as a variable, and reports with it.
type Happening[E any] struct{ number int }

// NewHappening declares E as something that is reported.
func NewHappening[E any]() Happening[E] {
	h := Happening[E]{number[E]()}
	kinds.Lock()
	defer kinds.Unlock()
	kinds.reported[h.number] = true
	return h
}

// kinds are the types that oracles may subscribe to, by number.
var kinds = struct {
	sync.Mutex
	numbers  map[reflect.Type]int
	reported map[int]bool
}{numbers: map[reflect.Type]int{}, reported: map[int]bool{}}

// number returns the number of a type, and gives it one if it has none.
func number[E any]() int {
	kinds.Lock()
	defer kinds.Unlock()
	t := reflect.TypeFor[E]()
	n, ok := kinds.numbers[t]
	if !ok {
		n = len(kinds.numbers)
		kinds.numbers[t] = n
		event, effect := reflect.TypeFor[effects.Event](), reflect.TypeFor[effects.Effect]()
		kinds.reported[n] = t.Implements(event) || t.Implements(effect)
	}
	return n
}

// What every system reports.
type (
	// Stepped is reported when a node's machine has made a step and its effects have been carried out. Event and
	// Effects are borrowed.
	Stepped struct {
		Event   effects.Event
		Effects *effects.Effects
	}
	// Down is reported when an incarnation of a node ends, with all that its machine remembers.
	Down struct{}
	// Quiet is reported once for each node, when every command has ended and nothing is under way any more.
	Quiet struct{}
)

// Declarations of what every system reports.
var (
	OnStepped = NewHappening[Stepped]()
	OnDown    = NewHappening[Down]()
	OnQuiet   = NewHappening[Quiet]()
)

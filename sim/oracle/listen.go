package oracle

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// An Oracle judges whether one promise is kept. [Of] creates an oracle; any number of runs may use the same oracle at
// the same time.
type Oracle struct {
	// Name identifies the oracle in failures. The name must not be that of a property in docs/safety.md.
	Name string
	// Promise states the promise in a sentence.
	Promise string
	begin   func() State
	parts   []part
}

// A part is a section of an oracle with its own memory and its own subscriptions. An oracle has one part, unless the
// listen function calls [Part].
type part struct {
	memory func(State) State // returns the memory of the part within the memory of the oracle
	hears  []subscription
}

// State is the memory of an oracle in a run. The dynamic type is *S, where S is the type parameter of [Of].
type State any

// Of creates an oracle whose memory in each run is an S. A run starts with the zero value of S. S must be a plain tree:
// structs, slices, maps, pointers, strings and numbers, but no functions and no channels. This allows [sim.Explore] to
// copy the memory together with the world and to compare worlds with their memories. In these comparisons an
// [effects.Time] counts by the distance from the current time.
//
// Listen is called once. Listen subscribes with [On] to the events, effects and happenings that the oracle needs. The
// subscribed functions must keep nothing outside S, because several runs may call these functions at the same time. The
// functions receive reports about the nodes of their own system and about the ranks that run beside that system.
func Of[S any](name, promise string, listen func(l *Listen[S])) Oracle {
	o := Oracle{Name: name, Promise: promise, begin: func() State { return new(S) },
		parts: []part{{memory: func(s State) State { return s }}}}
	listen(&Listen[S]{&o, 0})
	return o
}

// Subscriptions collects the subscriptions of an oracle whose memory is an S.
type Listen[S any] struct {
	oracle *Oracle
	part   int
}

// Part adds a part to an oracle and returns its collector of subscriptions. The memory of the part is the P that find
// returns for the oracle's S. Oracles that read each other's records are parts of the same oracle: see package ledger.
// A happening is reported to the parts in the order in which the parts were created.
func Part[P, S any](l *Listen[S], at func(*S) *P) *Listen[P] {
	outer := l.oracle.parts[l.part].memory
	l.oracle.parts = append(l.oracle.parts, part{memory: func(s State) State { return at(outer(s).(*S)) }})
	return &Listen[P]{l.oracle, len(l.oracle.parts) - 1}
}

// On subscribes a function to a kind of report, which the type E selects. E is either
//
//   - the pointer type of an event of package effects: the report comes just before the event is passed to a machine;
//   - the pointer type of an effect: the report comes just before the effect is carried out;
//   - a happening: [Stepped], [sim.Ended], [Down] or [Quiet], and, for oracles that come with the simulator, the
//     happenings of sim/world and sim/systems/pd.
//
// The value that e points to is borrowed, and may change after the function has returned.
func On[E, S any](l *Listen[S], hear func(s *S, c *Call, e E)) {
	p := &l.oracle.parts[l.part]
	p.hears = append(p.hears, subscriber[E]{number[E](), func(s State, c *Call, e E) { hear(s.(*S), c, e) }})
}

// String returns the name and the promise of the oracle.
func (o Oracle) String() string { return fmt.Sprintf("%s: %s", o.Name, o.Promise) }

// A Happening is a kind of report that oracles can subscribe to. Each report carries an E. The package that reports the
// happening declares a package variable with [NewHappening], and calls the Report method.
type Happening[E any] struct{ number int }

// NewHappening declares that values of type E are reported.
func NewHappening[E any]() Happening[E] {
	h := Happening[E]{number[E]()}
	kinds.Lock()
	defer kinds.Unlock()
	kinds.reported[h.number] = true
	return h
}

// kinds registers the types that oracles may subscribe to. Each type has a number, which serves as an index.
var kinds = struct {
	sync.Mutex
	numbers  map[reflect.Type]int
	reported map[int]bool
}{numbers: map[reflect.Type]int{}, reported: map[int]bool{}}

// number returns the number of the type E. A type without a number is assigned the next number.
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

// The happenings that every system reports.
type (
	// Stepped is reported when the machine of a node has completed a step and the effects of the step have been carried
	// out. Event and Effects are borrowed.
	Stepped struct {
		Event   effects.Event
		Effects *effects.Effects
	}
	// Down is reported when an incarnation of a node ends and the state of its machine is lost.
	Down struct{}
	// Quiet is reported once for each node, when every command has ended and nothing is in flight any more.
	Quiet struct{}
)

// The declarations of the happenings that every system reports.
var (
	OnStepped = NewHappening[Stepped]()
	OnDown    = NewHappening[Down]()
	OnQuiet   = NewHappening[Quiet]()
)

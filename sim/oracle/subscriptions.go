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
// listen function calls [AddPart].
type part struct {
	memory        func(State) State // returns the memory of the part within the memory of the oracle
	subscriptions []subscription
}

// State is the memory of an oracle in a run. The dynamic type is *S, where S is the type parameter of [Of].
type State any

// New creates an oracle whose memory in each run is an S. A run starts with the zero value of S. S must be a plain
// tree: structs, slices, maps, pointers, strings and numbers, but no functions and no channels. This allows
// [sim.Explore] to copy the memory together with the world and to compare worlds with their memories. In these
// comparisons an [effects.Time] counts by the distance from the current time.
//
// listen is called once. It subscribes with [On] to the events, effects and happenings that the oracle needs. The
// subscribed functions must keep nothing outside S, because several runs may call these functions at the same time. The
// functions receive reports about the nodes of their own system and about the ranks that run beside that system.
func New[S any](name, promise string, listen func(l *Subscriptions[S])) Oracle {
	o := Oracle{Name: name, Promise: promise, begin: func() State { return new(S) },
		parts: []part{{memory: func(s State) State { return s }}}}
	listen(&Subscriptions[S]{&o, 0})
	return o
}

// Subscriptions collects the subscriptions of an oracle whose memory is an S.
type Subscriptions[S any] struct {
	owner *Oracle
	part  int
}

// AddPart adds a part to an oracle and returns its collector of subscriptions. The memory of the part is the P that
// find returns for the oracle's S. Oracles that read each other's records are parts of the same oracle: see package
// ledger. A happening is reported to the parts in the order in which the parts were created.
func AddPart[P, S any](l *Subscriptions[S], find func(*S) *P) *Subscriptions[P] {
	outerMemory := l.owner.parts[l.part].memory
	l.owner.parts = append(l.owner.parts, part{memory: func(s State) State { return find(outerMemory(s).(*S)) }})
	return &Subscriptions[P]{l.owner, len(l.owner.parts) - 1}
}

// On subscribes a function to a kind of report, which the type E selects. E is either
//
//   - the pointer type of an event of package effects: the report comes just before the event is passed to a machine;
//   - the pointer type of an effect: the report comes just before the effect is carried out;
//   - a happening: [StepEnded], [sim.RunEnded], [IncarnationEnded] or [NodeIdle], and, for oracles that come with the simulator, the
//     happenings of sim/world and sim/systems/pd.
//
// The value that e points to is borrowed, and may change after the function has returned.
func On[E, S any](l *Subscriptions[S], handle func(s *S, c *Call, e E)) {
	p := &l.owner.parts[l.part]
	p.subscriptions = append(p.subscriptions, subscriber[E]{kindNumber[E](), func(s State, c *Call, e E) { handle(s.(*S), c, e) }})
}

// String returns the name and the promise of the oracle.
func (o Oracle) String() string { return fmt.Sprintf("%s: %s", o.Name, o.Promise) }

// A Happening is a kind of report that oracles can subscribe to. Each report carries an E. The package that reports the
// happening declares a package variable with [NewHappening], and calls the Report method.
type Happening[E any] struct{ kind int }

// NewHappening declares that values of type E are reported.
func NewHappening[E any]() Happening[E] {
	h := Happening[E]{kindNumber[E]()}
	reportKinds.Lock()
	defer reportKinds.Unlock()
	reportKinds.reported[h.kind] = true
	return h
}

// reportKinds registers the types that oracles may subscribe to. Each type has a number, which serves as an index.
var reportKinds = struct {
	sync.Mutex
	numbers  map[reflect.Type]int
	reported map[int]bool
}{numbers: map[reflect.Type]int{}, reported: map[int]bool{}}

// kindNumber returns the number of the type E. A type without a number is assigned the next number.
func kindNumber[E any]() int {
	reportKinds.Lock()
	defer reportKinds.Unlock()
	t := reflect.TypeFor[E]()
	n, ok := reportKinds.numbers[t]
	if !ok {
		n = len(reportKinds.numbers)
		reportKinds.numbers[t] = n
		event, effect := reflect.TypeFor[effects.Event](), reflect.TypeFor[effects.Effect]()
		reportKinds.reported[n] = t.Implements(event) || t.Implements(effect)
	}
	return n
}

// The happenings that every system reports.
type (
	// StepEnded is reported when the machine of a node has completed a step and the effects of the step have been
	// carried out. Event and Effects are borrowed.
	StepEnded struct {
		Event   effects.Event
		Effects *effects.Effects
	}
	// IncarnationEnded is reported when an incarnation of a node ends and the state of its machine is lost.
	IncarnationEnded struct{}
	// NodeIdle is reported once for each node, when every command has ended and nothing is in flight any more.
	NodeIdle struct{}
)

// The declarations of the happenings that every system reports.
var (
	OnStepEnded        = NewHappening[StepEnded]()
	OnIncarnationEnded = NewHappening[IncarnationEnded]()
	OnNodeIdle         = NewHappening[NodeIdle]()
)

package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A Property is a promise of the user's own, watched beside those of docs/safety.md.
type Property struct {
	// Name is how failures call it. It should not be one of docs/safety.md.
	Name string
	// Promise is what it says, in a sentence, for whoever reads of it broken; it may be empty.
	Promise string
	// Watch makes the watcher of one run, so that it can remember things. Runs may go on
	// at the same time, each with its own.
	Watch func() Watcher
}

// A Watcher looks at one run. Either function may be nil; an error breaks the property
// and ends the run.
type Watcher struct {
	// Step is called after each step of a node's machine.
	Step func(Step) error
	// End is called when the run is over and nothing was broken.
	End func(*Result) error
}

// A Step is one step of one node's machine. Event and Effects are borrowed: they hold
// until the watcher returns.
type Step struct {
	Now     effects.Duration // simulated, since the start of the run
	Node    int              // senders first
	Sender  bool
	Life    int           // how often the node was started before
	Event   effects.Event // what the machine was given
	Effects *effects.Effects
	Stats   rank.Stats // after it, of ranks
}

type watched struct {
	name, promise string
	Watcher
}

func (w *trial) watch(properties []Property) {
	for _, p := range properties {
		w.watchers = append(w.watchers, watched{p.Name, p.Promise, p.Watch()})
	}
}

func (w *trial) stepped(n *world.Node, ev effects.Event) {
	for _, x := range w.watchers {
		if x.Step == nil || w.Failure != nil {
			continue
		}
		s := Step{Now: effects.Duration(w.Now), Node: int(n.ID), Sender: n.Sends(), Life: int(n.Life), Event: ev,
			Effects: &n.Out}
		if !n.User {
			s.Stats = pd.StatsOf(n)
		}
		if err := x.Step(s); err != nil {
			w.breach(x, err)
		}
	}
}

func (w *trial) ended() {
	for _, x := range w.watchers {
		if x.End == nil || w.Failure != nil {
			continue
		}
		if err := x.End(&w.Result); err != nil {
			w.breach(x, err)
		}
	}
}

// breach ends the run with a broken promise of the user's own.
func (w *trial) breach(x watched, err error) {
	w.FailAs(x.name, x.promise, "%v", err)
}

// Promise is what a property of docs/safety.md says, in a sentence; "" for one that is unknown.
func Promise(property string) string { return oracle.Promise(property) }

package sim

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// ownSystem runs the machines of users, alone or beside ranks. It forwards everything that concerns a rank to PD.
var ownSystem = world.System{
	Name: "own",
	Cast: func(w *world.World, p *plan.Plan, n *world.Node) { trialOf(w).castOwn(p, n) },
	Boot: func(w *world.World, n *world.Node) (world.Pools, error) {
		if n.User {
			return trialOf(w).bootOwn(n)
		}
		return pd.System.Boot(w, n)
	},
	Engine: world.Engine{
		Begin: func(w *world.World) { trialOf(w).beginOwn() },
		Act:   func(w *world.World, d world.Delivery) { trialOf(w).actOwn(d) },
		Command: func(w *world.World, n *world.Node, t effects.Ticket) effects.CommandBody {
			return trialOf(w).commandedOwn(n, t)
		},
		Named:    pd.System.Engine.Named,
		Outcome:  func(w *world.World, n *world.Node, e *effects.Deliver) { trialOf(w).outcomeOwn(n, e) },
		Returned: func(w *world.World, n *world.Node, e *effects.Return) { trialOf(w).returnedOwn(n, e) },
		Observed: func(w *world.World, n *world.Node, e *effects.Observe) {
			if !n.User {
				pd.System.Engine.Observed(w, n, e)
			}
		},
		Died:       func(w *world.World, n *world.Node) { trialOf(w).VoidCommands(n) },
		Notice:     pd.System.Engine.Notice,
		Asked:      pd.System.Engine.Asked,
		Unfinished: pd.System.Engine.Unfinished,
		Tell:       pd.System.Engine.Tell,
		Patience:   func(w *world.World) effects.Duration { return trialOf(w).patienceOwn() },
		Keeps: func(w *world.World) effects.Duration {
			if trialOf(w).cast.ranks == 0 {
				return 0
			}
			return pd.System.Engine.Keeps(w)
		},
		Overdue: func(w *world.World) { trialOf(w).overdueOwn() },
		Probe: func(w *world.World) {
			if trialOf(w).cast.ranks > 0 {
				pd.System.Engine.Probe(w)
			}
		},
		Drain: func(w *world.World, n *world.Node) {
			if !n.User {
				pd.System.Engine.Drain(w, n)
			}
		},
	},
	Outsider: pd.System.Outsider,
	Words:    wordsOfAll(),
	Mischief: func(w *world.World, n *world.Node, f *plan.Scheduled) {
		if !n.User {
			pd.System.Mischief(w, n, f)
		}
	},
	Marks:   pd.PointMark,
	Closed:  pd.ClosedPorts,
	Tidy:    pd.System.Tidy,
	Calls:   pd.System.Calls,
	Invited: pd.System.Invited,
}

// wordsOfAll returns the messages of ranks, with a Legible that also covers the messages of users' machines.
func wordsOfAll() world.Words {
	x := pd.System.Words
	x.Legible = func(w *world.World, c *world.Conn) func([]byte) bool { return trialOf(w).legibleTo(c) }
	return x
}

// trialOf returns the trial that a world belongs to.
func trialOf(w *world.World) *trial { return w.Side.(*trial) }

// wantOwn is the first want number for commands of users' engines. The item of a command says what the command does.
const wantOwn = plan.Want(plan.Wants)

// castOwn makes a node run a user's machine, or a rank.
func (w *trial) castOwn(p *plan.Plan, n *world.Node) {
	if i := int(n.ID) - w.cast.ranks; i >= 0 {
		n.User, n.Side = true, &w.cast.own[i]
		return
	}
	pd.System.Cast(&w.World, p, n)
}

// beginOwn queues the workload of the engines.
func (w *trial) beginOwn() {
	if w.cast.ranks > 0 {
		pd.System.Engine.Begin(&w.World)
	}
	for i := range w.Source.Items {
		x := &w.Source.Items[i]
		w.Queue.Push(int64(x.At), world.Delivery{Kind: world.KindItem, Node: int32(x.Node), A: uint64(i)})
	}
	for _, n := range w.Nodes[w.cast.ranks:] {
		w.Tick(n) // The machine may have had a deadline from the start.
	}
}

// actOwn carries out a queued delivery of an engine.
func (w *trial) actOwn(d world.Delivery) {
	if d.Kind != world.KindItem {
		pd.System.Engine.Act(&w.World, d)
		return
	}
	if n := w.Nodes[d.Node]; n.Up {
		w.giveOwn(n, int(d.A))
	}
}

// giveOwn gives a machine the command of an item.
func (w *trial) giveOwn(n *world.Node, item int) {
	x := &w.Source.Items[item]
	do := user(n).system.Do
	verbs := slices.Sorted(maps.Keys(do))
	user(n).given++
	c := pd.Command{Want: wantOwn + plan.Want(slices.Index(verbs, x.Do)), Node: n.ID, Life: n.Life, Job: item,
		Body: do[x.Do](*x)}
	c.Name = plan.AboutCommand(uint32(n.ID), c.Want, user(n).given)
	t := w.AddCommand(c)
	w.Unfinished++
	w.Result.Commands++
	w.ForNode(n, 0, world.Delivery{Kind: world.KindCommand, A: uint64(t), B: uint64(c.Want)})
}

// item returns the item from which a command was made.
func (w *trial) item(c *pd.Command) *Item { return &w.Source.Items[c.Job] }

// commandedOwn returns the body of a command.
func (w *trial) commandedOwn(n *world.Node, t effects.Ticket) effects.CommandBody {
	if !n.User {
		return pd.System.Engine.Command(&w.World, n, t)
	}
	return w.Commands[t-1].Body
}

// outcomeOwn records the outcome of a command and verifies that it is the only one (L1).
func (w *trial) outcomeOwn(n *world.Node, e *effects.Deliver) {
	if !n.User {
		pd.System.Engine.Outcome(&w.World, n, e)
		return
	}
	c := w.CommandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which it was not given", n.It(), oracle.Ticket(e.Ticket))
		return
	case c.Over:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.It(), oracle.Ticket(e.Ticket), w.item(c).Do)
		return
	}
	c.Over, c.Code, c.Held, c.Outcome = true, e.Code, e.Held, w.Now
	if !e.Held {
		w.Unfinished--
	}
}

// returnedOwn records that a machine returns the memory of a command (L1).
func (w *trial) returnedOwn(n *world.Node, e *effects.Return) {
	if !n.User {
		pd.System.Engine.Returned(&w.World, n, e)
		return
	}
	c := w.CommandOf(n, e.Ticket)
	if c == nil || !c.Over || !c.Held {
		w.Fail("L1", "node %d returns ticket %d, which holds nothing", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.Held = false
	w.Unfinished--
}

// patienceDefault is the patience of systems that do not set Patience.
const patienceDefault = 10 * effects.Second

// patienceOwn returns the longest patience of all systems in the trial.
func (w *trial) patienceOwn() effects.Duration {
	d := effects.Duration(0)
	if w.cast.ranks > 0 {
		d = pd.System.Engine.Patience(&w.World)
	}
	for i := range w.cast.own {
		p := effects.Duration(w.cast.own[i].system.Patience)
		if p == 0 {
			p = patienceDefault
		}
		d = max(d, p)
	}
	return d
}

// overdueOwn fails the run for a command that has no outcome, or has not returned its memory, although all faults and
// its system's patience are over.
func (w *trial) overdueOwn() {
	if w.cast.ranks > 0 {
		pd.System.Engine.Overdue(&w.World)
	}
	for i := range w.Commands {
		c := &w.Commands[i]
		n := w.Nodes[c.Node]
		if !n.User || w.Failure != nil || c.Life != n.Life {
			continue
		}
		switch {
		case !c.Over:
			w.Fail("L1", "node %d never delivers ticket %d (%s)", n.It(), oracle.Ticket(i+1), w.item(c).Do)
		case c.Held:
			w.Fail("L1", "node %d never returns the memory of ticket %d (%s)", n.It(), oracle.Ticket(i+1), w.item(c).Do)
		}
	}
}

// legibleTo returns the function that distinguishes messages of a connection from garbage. legibleTo returns nil if
// nothing can make that distinction.
func (w *trial) legibleTo(c *world.Conn) func([]byte) bool {
	for _, at := range [...]int32{c.Client, c.Server} {
		if at >= 0 && w.Nodes[at].User {
			return user(w.Nodes[at]).system.Legible
		}
	}
	return pd.System.Words.Legible(&w.World, c)
}

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

// A trial is the [world.System] of its run. It embeds the cluster of PD, and replaces the methods of PD where a node
// may run a user's machine.
var _ world.System = (*trial)(nil)

// wantOwn is the first want number for commands of users' engines. The item of a command says what the command does.
const wantOwn = plan.Want(plan.Wants)

// Cast makes a node run a user's machine, or a rank.
func (w *trial) Cast(n *world.Node) {
	if i := int(n.ID) - w.cast.ranks; i >= 0 {
		n.User, n.Side = true, &w.cast.own[i]
		return
	}
	w.Cluster.Cast(n)
}

// StartEngines queues the workload of the engines.
func (w *trial) StartEngines() {
	if w.cast.ranks > 0 {
		w.Cluster.StartEngines()
	}
	for i := range w.Source.Items {
		x := &w.Source.Items[i]
		w.Queue.Push(int64(x.At), world.Delivery{Kind: world.KindItem, Node: int32(x.Node), A: uint64(i)})
	}
	for _, n := range w.Nodes[w.cast.ranks:] {
		w.Tick(n) // The machine may have had a deadline from the start.
	}
}

// Act carries out a queued delivery of an engine.
func (w *trial) Act(d world.Delivery) {
	if d.Kind != world.KindItem {
		w.Cluster.Act(d)
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

// CommandBody returns the body of a command.
func (w *trial) CommandBody(n *world.Node, t effects.Ticket) effects.CommandBody {
	if !n.User {
		return w.Cluster.CommandBody(n, t)
	}
	return w.Commands[t-1].Body
}

// HandleDeliver records the outcome of a command and verifies that the command has only one outcome (L1).
func (w *trial) Delivered(n *world.Node, e *effects.Deliver) {
	if !n.User {
		w.Cluster.Delivered(n, e)
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

// Returned records that a machine returns the memory of a command (L1).
func (w *trial) Returned(n *world.Node, e *effects.Return) {
	if !n.User {
		w.Cluster.Returned(n, e)
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

// Observed handles the report of a rank.
func (w *trial) Observed(n *world.Node, e *effects.Observe) {
	if !n.User {
		w.Cluster.Observed(n, e)
	}
}

// defaultCommandTimeout is the timeout of systems that do not set CommandTimeout.
const patienceDefault = 10 * effects.Second

// LongestDeadline returns the longest command timeout of all systems in the trial.
func (w *trial) Patience() effects.Duration {
	d := effects.Duration(0)
	if w.cast.ranks > 0 {
		d = w.Cluster.Patience()
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

// FailOverdue fails the run for a command that has no outcome, or has not returned its memory, although all faults have
// ended and the command timeout of the system has passed since.
func (w *trial) Overdue() {
	if w.cast.ranks > 0 {
		w.Cluster.Overdue()
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

// KeepTime returns the longest time for which a rank keeps a chunk that no peer requests. The machines of users keep
// nothing.
func (w *trial) KeepTime() effects.Duration {
	if w.cast.ranks == 0 {
		return 0
	}
	return w.Cluster.KeepTime()
}

// Probe verifies that transfers between ranks work again.
func (w *trial) Probe() {
	if w.cast.ranks > 0 {
		w.Cluster.Probe()
	}
}

// Drain asks a rank to drain.
func (w *trial) Drain(n *world.Node) {
	if !n.User {
		w.Cluster.Drain(n)
	}
}

// Mischief makes a fault of ranks strike.
func (w *trial) Mischief(n *world.Node, f *plan.Scheduled) {
	if !n.User {
		w.Cluster.Mischief(n, f)
	}
}

// Legible returns the function that distinguishes messages of a connection from garbage. Legible returns nil if
// nothing can make that distinction.
func (w *trial) Legible(c *world.Conn) func([]byte) bool {
	for _, at := range [...]int32{c.Client, c.Server} {
		if at >= 0 && w.Nodes[at].User {
			return user(w.Nodes[at]).system.Legible
		}
	}
	return w.Cluster.Legible(c)
}

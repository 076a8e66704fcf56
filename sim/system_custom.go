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

// firstCustomKind is the first want number for commands of users' engines. The item of a command says what the command
// does.
const firstCustomKind = plan.CommandKind(plan.CommandKindLimit)

// SetRole makes a node run a user's machine, or a rank.
func (w *trial) SetRole(n *world.Node) {
	if i := int(n.ID) - w.nodes.rankCount; i >= 0 {
		n.Custom, n.State = true, &w.nodes.customs[i]
		return
	}
	w.Cluster.SetRole(n)
}

// Plan returns the plan of the run, from which the oracles of systems learn the settings of their machines.
func (w *trial) Plan() *plan.Plan { return w.SourcePlan }

// MachineOf returns the machine of a node, of which the oracles of systems read the counts of its tables.
func (w *trial) MachineOf(n oracle.Node) any { return w.Nodes[n].Machine }

// StartEngines queues the workload of the engines.
func (w *trial) StartEngines() {
	if w.nodes.rankCount > 0 {
		w.Cluster.StartEngines()
	}
	for i := range w.SourcePlan.Items {
		x := &w.SourcePlan.Items[i]
		w.Queue.Push(int64(x.At), world.Delivery{Kind: world.KindItem, Node: int32(x.Node), A: uint64(i)})
	}
	for _, n := range w.Nodes[w.nodes.rankCount:] {
		w.ScheduleTick(n) // The machine may have had a deadline from the start.
	}
}

// HandleEngineDelivery carries out a queued delivery of an engine.
func (w *trial) HandleEngineDelivery(d world.Delivery) {
	if d.Kind != world.KindItem {
		w.Cluster.HandleEngineDelivery(d)
		return
	}
	if n := w.Nodes[d.Node]; n.Up {
		w.giveItem(n, int(d.A))
	}
}

// giveItem gives a machine the command of an item.
func (w *trial) giveItem(n *world.Node, item int) {
	x := &w.SourcePlan.Items[item]
	commands := customOf(n).system.Commands
	names := slices.Sorted(maps.Keys(commands))
	customOf(n).commandCount++
	c := pd.Command{Kind: firstCustomKind + plan.CommandKind(slices.Index(names, x.Do)), Node: n.ID, Incarnation: n.Incarnation, Job: item,
		Body: commands[x.Do](*x)}
	c.Name = plan.AboutCommand(uint32(n.ID), c.Kind, customOf(n).commandCount)
	t := w.AddCommand(c)
	w.UnfinishedCount++
	w.Result.Commands++
	w.QueueForNode(n, 0, world.Delivery{Kind: world.KindCommand, A: uint64(t), B: uint64(c.Kind)})
}

// itemOf returns the item from which a command was made.
func (w *trial) itemOf(c *pd.Command) *Item { return &w.SourcePlan.Items[c.Job] }

// CommandBody returns the body of a command.
func (w *trial) CommandBody(n *world.Node, t effects.Ticket) effects.CommandBody {
	if !n.Custom {
		return w.Cluster.CommandBody(n, t)
	}
	return w.Commands[t-1].Body
}

// HandleDeliver records the outcome of a command and verifies that the command has only one outcome (L1).
func (w *trial) HandleDeliver(n *world.Node, e *effects.Deliver) {
	if !n.Custom {
		w.Cluster.HandleDeliver(n, e)
		return
	}
	c := w.CommandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which no engine gave to it", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	case c.Finished:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.AsSubject(), oracle.Ticket(e.Ticket), w.itemOf(c).Do)
		return
	}
	c.Finished, c.Code, c.HoldsMemory, c.FinishedAt = true, e.Code, e.Held, w.Now
	if !e.Held {
		w.UnfinishedCount--
	}
}

// HandleReturn records that a machine returns the memory of a command (L1).
func (w *trial) HandleReturn(n *world.Node, e *effects.Return) {
	if !n.Custom {
		w.Cluster.HandleReturn(n, e)
		return
	}
	c := w.CommandOf(n, e.Ticket)
	if c == nil || !c.Finished || !c.HoldsMemory {
		w.Fail("L1", "node %d returns the memory of ticket %d, which holds no memory", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	}
	c.HoldsMemory = false
	w.UnfinishedCount--
}

// HandleObserve handles the report of a rank.
func (w *trial) HandleObserve(n *world.Node, e *effects.Observe) {
	if !n.Custom {
		w.Cluster.HandleObserve(n, e)
	}
}

// defaultCommandTimeout is the timeout of systems that do not set CommandTimeout.
const defaultCommandTimeout = 10 * effects.Second

// LongestDeadline returns the longest command timeout of all systems in the trial.
func (w *trial) LongestDeadline() effects.Duration {
	d := effects.Duration(0)
	if w.nodes.rankCount > 0 {
		d = w.Cluster.LongestDeadline()
	}
	for i := range w.nodes.customs {
		p := effects.Duration(w.nodes.customs[i].system.CommandTimeout)
		if p == 0 {
			p = defaultCommandTimeout
		}
		d = max(d, p)
	}
	return d
}

// FailOverdue fails the run for a command that has no outcome, or has not returned its memory, although all faults have
// ended and the command timeout of the system has passed since.
func (w *trial) FailOverdue() {
	if w.nodes.rankCount > 0 {
		w.Cluster.FailOverdue()
	}
	for i := range w.Commands {
		c := &w.Commands[i]
		n := w.Nodes[c.Node]
		if !n.Custom || w.Failure != nil || c.Incarnation != n.Incarnation {
			continue
		}
		switch {
		case !c.Finished:
			w.Fail("L1", "node %d never delivers ticket %d (%s)", n.AsSubject(), oracle.Ticket(i+1), w.itemOf(c).Do)
		case c.HoldsMemory:
			w.Fail("L1", "node %d never returns the memory of ticket %d (%s)", n.AsSubject(), oracle.Ticket(i+1), w.itemOf(c).Do)
		}
	}
}

// KeepTime returns the longest time for which a rank keeps a chunk that no peer requests. The machines of users keep
// nothing.
func (w *trial) KeepTime() effects.Duration {
	if w.nodes.rankCount == 0 {
		return 0
	}
	return w.Cluster.KeepTime()
}

// ProbeTransfers verifies that transfers between ranks work again.
func (w *trial) ProbeTransfers() {
	if w.nodes.rankCount > 0 {
		w.Cluster.ProbeTransfers()
	}
}

// DrainNode asks a rank to drain.
func (w *trial) DrainNode(n *world.Node) {
	if !n.Custom {
		w.Cluster.DrainNode(n)
	}
}

// StartFault makes a fault of ranks strike.
func (w *trial) StartFault(n *world.Node, f *plan.ScheduledFault) {
	if !n.Custom {
		w.Cluster.StartFault(n, f)
	}
}

// MessageValidator returns the function that distinguishes messages of a connection from garbage. MessageValidator
// returns nil if nothing can make that distinction.
func (w *trial) MessageValidator(c *world.Conn) func([]byte) bool {
	for _, at := range [...]int32{c.Client, c.Server} {
		if at >= 0 && w.Nodes[at].Custom {
			return customOf(w.Nodes[at]).system.IsWellFormed
		}
	}
	return w.Cluster.MessageValidator(c)
}

package sim

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// ownSystem is machines of users, alone or beside ranks: what is a rank's goes to PD.
var ownSystem = world.System{
	Name:     "own",
	Profiles: expand.Profiles(),
	Cast:     func(w *world.World, p *plan.Plan, n *world.Node) { of(w).castOwn(p, n) },
	Boot: func(w *world.World, n *world.Node) (world.Pools, error) {
		if n.User {
			return of(w).bootOwn(n)
		}
		return pdSystem.Boot(w, n)
	},
	Engine: world.Engine{
		Begin: func(w *world.World) { of(w).beginOwn() },
		Act:   func(w *world.World, d world.Delivery) { of(w).actOwn(d) },
		Command: func(w *world.World, n *world.Node, t effects.Ticket) effects.CommandBody {
			return of(w).commandedOwn(n, t)
		},
		Named:    pdSystem.Engine.Named,
		Outcome:  func(w *world.World, n *world.Node, e *effects.Deliver) { of(w).outcomeOwn(n, e) },
		Returned: func(w *world.World, n *world.Node, e *effects.Return) { of(w).returnedOwn(n, e) },
		Observed: func(w *world.World, n *world.Node, e *effects.Observe) {
			if !n.User {
				pdSystem.Engine.Observed(w, n, e)
			}
		},
		Notice:     pdSystem.Engine.Notice,
		Asked:      pdSystem.Engine.Asked,
		Unfinished: pdSystem.Engine.Unfinished,
		Tell:       pdSystem.Engine.Tell,
		Patience:   func(w *world.World) effects.Duration { return of(w).patienceOwn() },
		Keeps: func(w *world.World) effects.Duration {
			if of(w).cast.ranks == 0 {
				return 0
			}
			return pdSystem.Engine.Keeps(w)
		},
		Overdue: func(w *world.World) { of(w).overdueOwn() },
		Probe: func(w *world.World) {
			if of(w).cast.ranks > 0 {
				pdSystem.Engine.Probe(w)
			}
		},
		Drain: func(w *world.World, n *world.Node) {
			if !n.User {
				pdSystem.Engine.Drain(w, n)
			}
		},
	},
	Outsider: pdSystem.Outsider,
	Words:    pdSystem.Words,
	Mischief: func(w *world.World, n *world.Node, f *plan.Scheduled) {
		if !n.User {
			pdSystem.Mischief(w, n, f)
		}
	},
	Marks:   pointMark,
	Closed:  closedPorts,
	Tidy:    pdSystem.Tidy,
	Calls:   pdSystem.Calls,
	Invited: pdSystem.Invited,
}

// wantOwn is what commands of users' engines are for, in numbers; whose item it is says the rest.
const wantOwn = plan.Want(plan.Wants)

// castOwn has a node be one of a user's, or a rank.
func (w *cluster) castOwn(p *plan.Plan, n *world.Node) {
	if i := int(n.ID) - w.cast.ranks; i >= 0 {
		n.User, n.Side = true, &w.cast.own[i]
		return
	}
	pdSystem.Cast(&w.World, p, n)
}

// beginOwn queues what engines want.
func (w *cluster) beginOwn() {
	if w.cast.ranks > 0 {
		pdSystem.Engine.Begin(&w.World)
	}
	for i := range w.Source.Items {
		x := &w.Source.Items[i]
		w.Queue.Push(int64(x.At), world.Delivery{Kind: world.KindItem, Node: int32(x.Node), A: uint64(i)})
	}
	for _, n := range w.Nodes[w.cast.ranks:] {
		w.Tick(n) // It may have had a deadline from the start.
	}
}

func (w *cluster) actOwn(d world.Delivery) {
	if d.Kind != world.KindItem {
		pdSystem.Engine.Act(&w.World, d)
		return
	}
	if n := w.Nodes[d.Node]; n.Up {
		w.giveOwn(n, int(d.A))
	}
}

// giveOwn gives a machine the command of an item.
func (w *cluster) giveOwn(n *world.Node, item int) {
	x := &w.Source.Items[item]
	do := user(n).system.Do
	verbs := slices.Sorted(maps.Keys(do))
	user(n).given++
	c := command{want: wantOwn + plan.Want(slices.Index(verbs, x.Do)), node: n.ID, life: n.Life, job: item,
		body: do[x.Do](*x)}
	c.name = plan.AboutCommand(uint32(n.ID), c.want, user(n).given)
	t := w.addCommand(c)
	w.unfinished++
	w.Result.Commands++
	w.ForNode(n, 0, world.Delivery{Kind: world.KindCommand, A: uint64(t), B: uint64(c.want)})
}

// item is what a command is for.
func (w *cluster) item(c *command) *Item { return &w.Source.Items[c.job] }

func (w *cluster) commandedOwn(n *world.Node, t effects.Ticket) effects.CommandBody {
	if !n.User {
		return pdSystem.Engine.Command(&w.World, n, t)
	}
	return w.commands[t-1].body
}

func (w *cluster) outcomeOwn(n *world.Node, e *effects.Deliver) {
	if !n.User {
		pdSystem.Engine.Outcome(&w.World, n, e)
		return
	}
	c := w.commandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which it was not given", n.It(), oracle.Ticket(e.Ticket))
		return
	case c.over:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.It(), oracle.Ticket(e.Ticket), w.item(c).Do)
		return
	}
	c.over, c.code, c.held, c.outcome = true, e.Code, e.Held, w.Now
	if !e.Held {
		w.unfinished--
	}
}

func (w *cluster) returnedOwn(n *world.Node, e *effects.Return) {
	if !n.User {
		pdSystem.Engine.Returned(&w.World, n, e)
		return
	}
	c := w.commandOf(n, e.Ticket)
	if c == nil || !c.over || !c.held {
		w.Fail("L1", "node %d returns ticket %d, which holds nothing", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.held = false
	w.unfinished--
}

// patienceDefault is for systems that say nothing else.
const patienceDefault = 10 * effects.Second

func (w *cluster) patienceOwn() effects.Duration {
	d := effects.Duration(0)
	if w.cast.ranks > 0 {
		d = pdSystem.Engine.Patience(&w.World)
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

// overdueOwn finds a command that has no outcome although all faults are over and its system's patience, too.
func (w *cluster) overdueOwn() {
	if w.cast.ranks > 0 {
		pdSystem.Engine.Overdue(&w.World)
	}
	for i := range w.commands {
		c := &w.commands[i]
		n := w.Nodes[c.node]
		if !n.User || w.Failure != nil || c.life != n.Life {
			continue
		}
		switch {
		case !c.over:
			w.Fail("L1", "node %d never delivers ticket %d (%s)", n.It(), oracle.Ticket(i+1), w.item(c).Do)
		case c.held:
			w.Fail("L1", "node %d never returns the memory of ticket %d (%s)", n.It(), oracle.Ticket(i+1), w.item(c).Do)
		}
	}
}

// diedOwn forgets what a life's engine wanted.
func (w *cluster) diedOwn(n *world.Node) {
	for _, t := range w.undone.Some {
		c := &w.commands[t-1]
		if c.node == n.ID && c.life == n.Life && (!c.over || c.held) {
			c.over, c.held = true, false
			w.unfinished--
		}
	}
}

// legibleTo says how messages of a connection are told from garbage; nil: nobody can.
func (w *cluster) legibleTo(c *world.Conn) func([]byte) bool {
	if n := w.Nodes[c.Client]; n.User {
		return user(n).system.Legible
	}
	return legible
}

package sim

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// ownSystem is machines of users, alone or beside ranks: what is a rank's goes to PD.
var ownSystem = system{
	name:     "own",
	profiles: profiles,
	cast:     (*world).castOwn,
	boot: func(w *world, n *node) (pools, error) {
		if n.own != nil {
			return w.bootOwn(n)
		}
		return pdSystem.boot(w, n)
	},
	engine: engine{
		begin:    (*world).beginOwn,
		act:      (*world).actOwn,
		command:  (*world).commandedOwn,
		named:    pdSystem.engine.named,
		outcome:  (*world).outcomeOwn,
		returned: (*world).returnedOwn,
		observed: func(w *world, n *node, e *effects.Observe) {
			if n.own == nil {
				pdSystem.engine.observed(w, n, e)
			}
		},
		notice:   pdSystem.engine.notice,
		tell:     pdSystem.engine.tell,
		patience: (*world).patienceOwn,
		keeps: func(w *world) effects.Duration {
			if w.cast.ranks == 0 {
				return 0
			}
			return pdSystem.engine.keeps(w)
		},
		overdue: (*world).overdueOwn,
		probe: func(w *world) {
			if w.cast.ranks > 0 {
				pdSystem.engine.probe(w)
			}
		},
		drain: func(w *world, n *node) {
			if n.own == nil {
				pdSystem.engine.drain(w, n)
			}
		},
	},
	outsider: pdSystem.outsider,
	words:    pdSystem.words,
	mischief: func(w *world, n *node, f *plan.Scheduled) {
		if n.own == nil {
			pdSystem.mischief(w, n, f)
		}
	},
	closed: closedPorts,
}

// wantOwn is what commands of users' engines are for, in numbers; whose item it is says the rest.
const wantOwn = plan.Want(plan.Wants)

// castOwn has a node be one of a user's, or a rank.
func (w *world) castOwn(p *plan.Plan, n *node) {
	if i := int(n.id) - w.cast.ranks; i >= 0 {
		n.own = &w.cast.own[i]
		return
	}
	pdSystem.cast(w, p, n)
}

// beginOwn queues what engines want.
func (w *world) beginOwn() {
	if w.cast.ranks > 0 {
		pdSystem.engine.begin(w)
	}
	for i := range w.source.Items {
		x := &w.source.Items[i]
		w.queue.push(int64(x.At), delivery{kind: kindItem, node: int32(x.Node), a: uint64(i)})
	}
	for _, n := range w.nodes[w.cast.ranks:] {
		w.tick(n) // It may have had a deadline from the start.
	}
}

func (w *world) actOwn(d delivery) {
	if d.kind != kindItem {
		pdSystem.engine.act(w, d)
		return
	}
	if n := w.nodes[d.node]; n.up {
		w.giveOwn(n, int(d.a))
	}
}

// giveOwn gives a machine the command of an item.
func (w *world) giveOwn(n *node, item int) {
	x := &w.source.Items[item]
	do := n.own.system.Do
	verbs := slices.Sorted(maps.Keys(do))
	n.own.given++
	c := command{want: wantOwn + plan.Want(slices.Index(verbs, x.Do)), node: n.id, life: n.life, job: item,
		body: do[x.Do](*x)}
	c.name = plan.AboutCommand(uint32(n.id), c.want, n.own.given)
	t := w.addCommand(c)
	w.unfinished++
	w.result.Commands++
	w.forNode(n, 0, delivery{kind: kindCommand, a: uint64(t), b: uint64(c.want)})
}

// item is what a command is for.
func (w *world) item(c *command) *Item { return &w.source.Items[c.job] }

func (w *world) commandedOwn(n *node, t effects.Ticket) effects.CommandBody {
	if n.own == nil {
		return pdSystem.engine.command(w, n, t)
	}
	return w.commands[t-1].body
}

func (w *world) outcomeOwn(n *node, e *effects.Deliver) {
	if n.own == nil {
		pdSystem.engine.outcome(w, n, e)
		return
	}
	c := w.commandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.fail("L1", "node %d delivers ticket %d, which it was not given", n.it(), oracle.Ticket(e.Ticket))
		return
	case c.over:
		w.fail("L1", "node %d delivers ticket %d (%s) twice", n.it(), oracle.Ticket(e.Ticket), w.item(c).Do)
		return
	}
	c.over, c.code, c.held, c.outcome = true, e.Code, e.Held, w.now
	if !e.Held {
		w.unfinished--
	}
}

func (w *world) returnedOwn(n *node, e *effects.Return) {
	if n.own == nil {
		pdSystem.engine.returned(w, n, e)
		return
	}
	c := w.commandOf(n, e.Ticket)
	if c == nil || !c.over || !c.held {
		w.fail("L1", "node %d returns ticket %d, which holds nothing", n.it(), oracle.Ticket(e.Ticket))
		return
	}
	c.held = false
	w.unfinished--
}

// patienceDefault is for systems that say nothing else.
const patienceDefault = 10 * effects.Second

func (w *world) patienceOwn() effects.Duration {
	d := effects.Duration(0)
	if w.cast.ranks > 0 {
		d = pdSystem.engine.patience(w)
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
func (w *world) overdueOwn() {
	if w.cast.ranks > 0 {
		pdSystem.engine.overdue(w)
	}
	for i := range w.commands {
		c := &w.commands[i]
		n := w.nodes[c.node]
		if n.own == nil || w.failure != nil || c.life != n.life {
			continue
		}
		switch {
		case !c.over:
			w.fail("L1", "node %d never delivers ticket %d (%s)", n.it(), oracle.Ticket(i+1), w.item(c).Do)
		case c.held:
			w.fail("L1", "node %d never returns the memory of ticket %d (%s)", n.it(), oracle.Ticket(i+1), w.item(c).Do)
		}
	}
}

// diedOwn forgets what a life's engine wanted.
func (w *world) diedOwn(n *node) {
	for _, t := range w.going.commands.some {
		c := &w.commands[t-1]
		if c.node == n.id && c.life == n.life && (!c.over || c.held) {
			c.over, c.held = true, false
			w.unfinished--
		}
	}
}

// planeless says whether an effect is one that a node without pages can have.
func planeless(e effects.Effect) bool {
	switch e.(type) {
	case *effects.Open, *effects.Close, *effects.Send, *effects.Post, *effects.Reply, *effects.Deliver, *effects.Return,
		*effects.Observe:
		return true
	default:
		return false
	}
}

// postOwn carries what nobody answers from or to a machine of a user's.
func (w *world) postOwn(n *node, c *conn, e *effects.Post) {
	code := w.takes(c)
	if n.own == nil {
		if _, _, ok := w.system.engine.notice(w, n, e.Body, code == effects.OK); !ok {
			return
		}
	}
	d := w.connDraw(draw.Post, c)
	w.forNode(n, d.Heavy(w.plan.Net/4), delivery{kind: kindSendDone, a: uint64(e.Corr), b: uint64(code)})
	if code != effects.OK || c.server < 0 {
		return
	}
	delay := d.Again().Heavy(w.plan.Net) + w.held(n.id, c.server)
	w.after(delay, delivery{kind: kindTold, node: plan.Nobody, a: c.id, body: w.body(e.Body)})
	if again, yes := w.strikes(plan.FaultDoubled, c.name, c.sent); yes {
		w.after(delay+again.Span(0, effects.Second),
			delivery{kind: kindTold, node: plan.Nobody, a: c.id, body: w.body(e.Body)})
	}
}

// legibleTo says how messages of a connection are told from garbage; nil: nobody can.
func (w *world) legibleTo(c *conn) func([]byte) bool {
	if n := w.nodes[c.client]; n.own != nil {
		return n.own.system.Legible
	}
	return w.system.words.legible
}

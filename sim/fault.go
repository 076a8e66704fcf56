package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// trap crashes a node in the middle of a step, or lets its rank fail alone, once it was let pass some times.
type trap struct {
	plan.Moment
	skip  uint64
	alone bool
}

// sprung says whether e springs the trap.
func (w *world) sprung(n *node, e effects.Effect) bool {
	if n.trap.Effect != plan.EffectAny && n.trap.Effect != plan.KindOf(e) {
		return false
	}
	if n.trap.skip > 0 {
		n.trap.skip--
		return false
	}
	return true
}

// schedule queues the plan's faults. A delivery carries what one needs: a is its pick,
// b how long it lasts, c its place in the plan.
func (w *world) schedule(faults []plan.Scheduled) {
	for i := range faults {
		f := &faults[i]
		w.queue.push(int64(f.At), delivery{kind: scheduledKinds[f.Fault], node: int32(f.Node), a: f.Pick, b: uint64(f.For), c: uint64(i)})
	}
}

// scheduledKinds are the deliveries by which scheduled faults start.
var scheduledKinds = map[plan.Fault]kind{plan.FaultDrain: kindMischief, plan.FaultFreeze: kindPause,
	plan.FaultTwice: kindMischief, plan.FaultPartition: kindMischief, plan.FaultDeafPartition: kindMischief,
	plan.FaultFlapping: kindMischief, plan.FaultReset: kindMischief, plan.FaultSlow: kindMischief,
	plan.FaultHostile: kindMischief, plan.FaultForged: kindMischief, plan.FaultGreedy: kindMischief,
	plan.FaultCrash: kindTrap, plan.FaultAlone: kindTrap, plan.FaultPause: kindPause, plan.FaultCutConn: kindCutConn,
	plan.FaultCutLink: kindCutLink, plan.FaultNoise: kindNoise}

func (w *world) setTrap(n *node, x delivery) {
	if !n.up || w.healed {
		return
	}
	f := &w.source.Faults[x.c]
	m, _ := plan.ParseMoment(f.When)
	n.trap = trap{m, f.Nth, f.Fault == plan.FaultAlone}
	if !m.Is {
		w.fall(n)
		return
	}
	w.journal.note(w.now, kindTrap, n.id, uint64(m.Effect), f.Nth, 0)
}

// fall does what the trap is set for.
func (w *world) fall(n *node) {
	if n.trap.alone {
		w.failAlone(n)
		return
	}
	w.crash(n)
}

// crash ends a life at once: its memory and tables are gone, what it submitted to
// hardware is not.
func (w *world) crash(n *node) {
	if !n.up || w.healed {
		n.trap = trap{}
		return
	}
	w.result.fault(plan.FaultCrash)
	w.journal.note(w.now, kindCrash, n.id, uint64(n.life), 0, 0)
	w.die(n)
}

// exit ends the process of a node that has drained.
func (w *world) exit(n *node) {
	w.journal.note(w.now, kindExit, n.id, uint64(n.life), 0, 0)
	w.die(n)
}

func (w *world) die(n *node) {
	d := w.stop(n)
	w.leaveLinks(n, d)
	w.after(d.Span(10*effects.Millisecond, 1500*effects.Millisecond), delivery{kind: kindRestart, node: n.id})
}

// stop ends a life's machine, and its connections.
func (w *world) stop(n *node) draw.Of {
	w.oracles.onDeath(n)
	n.up = false
	n.trap = trap{}
	n.thaw = 0
	d := w.draw(draw.Crash, n)
	if w.careless == peersUntold {
		return d
	}
	for _, c := range w.going.conns.some {
		if c.closed {
			continue
		}
		if c.client == n.id && c.life == n.life {
			c.closed = true
			w.tellServer(c, false)
		}
		if c.server == n.id && c.known == n.life && c.waits() > 0 {
			// The request died with its server. Some transports tell, some do not.
			w.cut(c, w.struck(plan.FaultUnnoticed, c.name, c.sent))
		}
	}
	return d
}

// leaveLinks ends the links of a life whose planes have ended.
func (w *world) leaveLinks(n *node, d draw.Of) {
	if w.plan.Communicators && n.own == nil {
		w.commDied(n)
		return
	}
	for _, l := range w.links {
		switch {
		case l.from == n.id && l.fromLife == n.life && !l.lost:
			w.endLink(n, l, d, false)
			l.dropped = true
		case l.target != n.pool || !w.nodes[l.from].up || w.nodes[l.from].life != l.fromLife:
		case l.lost:
			w.settleDead(l)
		case n.pulls && !w.plan.Leased && w.draw(draw.Notice, w.nodes[l.from]).Permille(500):
			// Whoever has its memory mapped reads on before he notices.
			w.forNode(w.nodes[l.from], d.Again().Again().Heavy(2*w.plan.Net), delivery{kind: kindNoticed, a: l.id})
		default:
			w.endLink(w.nodes[l.from], l, w.draw(draw.Notice, w.nodes[l.from]), true)
		}
	}
}

// settleDead settles the pushes of a lost link whose target has died meanwhile: no
// process is left that could touch a page.
func (w *world) settleDead(l *link) {
	for _, t := range w.going.transfers.some {
		if t.link == l && t.asked && !t.settled {
			t.ended = true
			w.settle(t, effects.PeerLost, 0)
		}
	}
}

func (w *world) restart(n *node) {
	if n.up {
		return
	}
	w.shut(n.pool)
	n.life++
	w.journal.note(w.now, kindRestart, n.id, uint64(n.life), 0, 0)
	if err := w.start(n); err != nil {
		panic("BUG: " + err.Error())
	}
	if n.twice && !w.healed {
		w.after(w.draw(draw.Crash, n).Span(0, 50*effects.Millisecond),
			delivery{kind: kindMischief, node: n.id, a: 1, c: n.again})
	}
	n.twice = false
	w.restartMeets(n)
	w.tick(n)
	w.tellMissed(n)
	for _, c := range w.going.conns.some {
		for i := range c.asked {
			if q := &c.asked[i]; c.server == n.id && q.parked != nil {
				w.after(w.nthDraw(draw.Request, c, q.nth).Heavy(w.plan.Net),
					delivery{kind: kindArrive, node: plan.Nobody, a: c.id, b: uint64(q.corr), body: q.parked})
				q.parked = nil
			}
		}
	}
}

// pause freezes a process; hardware that it started goes on.
func (w *world) pause(n *node, x delivery) {
	if !n.up || w.healed {
		return
	}
	w.result.fault(w.source.Faults[x.c].Fault)
	span := effects.Duration(x.b)
	n.thaw = max(n.thaw, w.now+int64(span))
	n.frozen += int64(span)
	w.journal.note(w.now, kindPause, n.id, uint64(n.thaw), 0, 0)
	w.queue.push(n.thaw, delivery{kind: kindThaw, node: n.id, life: n.life})
}

// thaw lets a process go on, with all that came meanwhile in the order it came.
func (w *world) thaw(n *node) {
	if !n.up || n.thaw > w.now {
		return
	}
	late := n.backlog
	n.backlog, n.thawed = n.thawed[:0], nil
	for _, d := range late {
		w.deliver(d)
	}
	clear(late)
	n.thawed = late[:0]
}

func (w *world) cutSomeConn(x delivery) {
	var open []*conn
	for _, c := range w.going.conns.some {
		if !c.closed && !c.dead && c.server != plan.Nobody {
			open = append(open, c)
		}
	}
	if len(open) == 0 || w.healed {
		return
	}
	c := open[draw.Of(x.a).Below(uint64(len(open)))]
	w.result.fault(plan.FaultCutConn)
	w.journal.note(w.now, kindCutConn, c.client, c.id, 0, 0)
	w.cut(c, w.struck(plan.FaultUnnoticed, c.name, c.sent))
}

func (w *world) cutSomeLink(x delivery) {
	var open []*link
	for _, l := range w.links {
		if !l.lost && !l.dropped {
			open = append(open, l)
		}
	}
	if len(open) == 0 || w.healed {
		return
	}
	l := open[draw.Of(x.a).Below(uint64(len(open)))]
	w.result.fault(plan.FaultCutLink)
	w.journal.note(w.now, kindCutLink, l.from, l.id, 0, 0)
	w.endLink(w.nodes[l.from], l, draw.Of(x.a).Again(), true)
}

// noise sends a server bytes that are no message: random ones, and cut ones.
func (w *world) noise(n *node, x delivery) {
	if !n.up || w.healed || n.own != nil && len(n.listens) == 0 {
		return
	}
	w.result.fault(plan.FaultNoise)
	d := draw.Of(x.a)
	var b []byte
	if d.Permille(500) {
		for i := range d.Again().Below(200) {
			b = append(b, byte(draw.Hash(uint64(d), draw.Noise, 1, i)))
		}
	} else {
		b = w.system.words.good()
		b = b[:d.Again().Below(uint64(len(b)))]
	}
	channel := w.anyPort(n, d.Again().Again())
	w.journal.note(w.now, kindNoise, n.id, uint64(channel), uint64(len(b)), 0)
	w.stranger(n, channel, b)
}

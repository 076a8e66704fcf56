package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Trap crashes a node in the middle of a step, or lets its rank fail alone, at the first matching effect after Skip
// matching effects.
type Trap struct {
	plan.Moment
	Skip  uint64
	alone bool // the rank fails alone instead of crashing the process
}

// sprung reports whether e springs the trap, which must be set. sprung counts down Skip.
func (t *Trap) sprung(e effects.Effect) bool {
	if t.Effect != plan.AnyEffect && t.Effect != effects.KindOf(e) {
		return false
	}
	if t.Skip > 0 {
		t.Skip--
		return false
	}
	return true
}

// Schedule queues the plan's scheduled faults. In these deliveries, A is the fault's pick, B its duration, and C its
// place in the plan.
func (w *World) Schedule(faults []plan.Scheduled) {
	for i := range faults {
		f := &faults[i]
		w.Queue.Push(int64(f.At), Delivery{Kind: scheduledKinds[f.Fault], Node: int32(f.Node), A: f.Pick, B: uint64(f.For),
			C: uint64(i)})
	}
}

// scheduledKinds maps each scheduled fault to the kind of delivery by which the fault starts.
var scheduledKinds = map[plan.Fault]Kind{plan.FaultDrain: kindMischief, plan.FaultFreeze: KindPause,
	plan.FaultTwice: kindMischief, plan.FaultPartition: kindMischief, plan.FaultDeafPartition: kindMischief,
	plan.FaultFlapping: kindMischief, plan.FaultReset: kindMischief, plan.FaultSlow: kindMischief,
	plan.FaultHostile: kindMischief, plan.FaultForged: kindMischief, plan.FaultGreedy: kindMischief,
	plan.FaultCrowd: kindMischief,
	plan.FaultCrash: kindTrap, plan.FaultAlone: kindTrap, plan.FaultPause: KindPause, plan.FaultCutConn: KindCutConn,
	plan.FaultCutLink: KindCutLink, plan.FaultNoise: KindNoise}

// setTrap starts a fault that waits for its moment in a step.
func (n *Node) setTrap(w *World, x Delivery) {
	if !n.Up || w.Healed {
		return
	}
	f := &w.Source.Faults[x.C]
	m, _ := plan.ParseMoment(f.When)
	n.Trap = Trap{m, f.Nth, f.Fault == plan.FaultAlone}
	if !m.Is {
		n.fall(w)
		return
	}
	w.Journal.Note(w.Now, kindTrap, n.ID, uint64(m.Effect), f.Nth, 0)
}

// fall carries out the fault that the trap was set for.
func (n *Node) fall(w *World) {
	if n.Trap.alone {
		n.failAlone(w)
		return
	}
	w.Crash(n)
}

// Crash ends an incarnation at once. The memory and tables of the incarnation are lost, but operations that were
// submitted to hardware continue.
func (w *World) Crash(n *Node) {
	if !n.Up || w.Healed {
		n.Trap = Trap{}
		return
	}
	w.Result.Fault(plan.FaultCrash)
	w.Journal.Note(w.Now, KindCrash, n.ID, uint64(n.Life), 0, 0)
	n.die(w)
}

// exit ends the process of a node that has drained.
func (n *Node) exit(w *World) {
	w.Journal.Note(w.Now, KindExit, n.ID, uint64(n.Life), 0, 0)
	n.die(w)
}

// die ends the process of a node and schedules its restart.
func (n *Node) die(w *World) {
	d := n.stop(w)
	n.leaveLinks(w, d)
	w.After(d.Span(10*effects.Millisecond, 1500*effects.Millisecond), Delivery{Kind: KindRestart, Node: n.ID})
}

// stop ends the machine of an incarnation and its connections.
func (n *Node) stop(w *World) draw.Of {
	oracle.OnDown.Report(&w.Panel, n.ID, oracle.Down{})
	w.System.VoidCommands(n)
	n.Up = false
	n.Trap = Trap{}
	n.Thaw = 0
	d := n.draw(w, draw.Crash)
	if w.Careless == PeersUntold {
		return d
	}
	for _, c := range w.Going.Conns.Some {
		if c.Closed {
			continue
		}
		if c.Client == n.ID && c.Life == n.Life {
			c.Closed = true
			c.tellServer(w, false)
		}
		if c.Server == n.ID && c.known == n.Life && c.Waits() > 0 {
			// The request was lost with its server. Only some transports report the loss.
			w.Cut(c, w.Struck(plan.FaultUnnoticed, c.Name, c.Sent))
		}
	}
	return d
}

// leaveLinks ends the links of an incarnation after its planes have ended.
func (n *Node) leaveLinks(w *World, d draw.Of) {
	if w.Setting.Communicators && !n.User {
		n.commDied(w)
		return
	}
	for _, l := range w.Links {
		switch {
		case l.From == n.ID && l.FromLife == n.Life && !l.Lost:
			w.EndLink(n, l, d, false)
			l.Dropped = true
		case l.Target != n.Pool || !w.Nodes[l.From].Up || w.Nodes[l.From].Life != l.FromLife:
		case l.Lost:
			l.settleDead(w)
		case n.Pulls && !w.Setting.Leased && w.Nodes[l.From].draw(w, draw.Notice).Permille(500):
			// A peer that has mapped the memory continues to read until the peer notices the end.
			w.ForNode(w.Nodes[l.From], d.Again().Again().Heavy(2*w.Setting.Net), Delivery{Kind: KindNoticed, A: l.ID})
		default:
			w.EndLink(w.Nodes[l.From], l, w.Nodes[l.From].draw(w, draw.Notice), true)
		}
	}
}

// settleDead settles the pushes of a lost link if its target has died in the meantime: no process is left that could
// touch a page.
func (l *Link) settleDead(w *World) {
	for _, t := range w.Going.Transfers.Some {
		if t.Link == l && t.Asked && !t.Settled {
			t.Ended = true
			t.settle(w, effects.PeerLost, 0)
		}
	}
}

// restart starts the next incarnation of a node that is down and delivers the messages that waited for the restart.
func (n *Node) restart(w *World) {
	if n.Up {
		return
	}
	n.Pool.shut(w)
	n.Life++
	w.Journal.Note(w.Now, KindRestart, n.ID, uint64(n.Life), 0, 0)
	if err := n.start(w); err != nil {
		panic("BUG: " + err.Error())
	}
	if n.twice && !w.Healed {
		w.After(n.draw(w, draw.Crash).Span(0, 50*effects.Millisecond),
			Delivery{Kind: kindMischief, Node: n.ID, A: 1, C: n.again})
	}
	n.twice = false
	OnRestarted.Report(&w.Panel, n.ID, Restarted{n})
	w.Tick(n)
	n.tellMissed(w)
	for _, c := range w.Going.Conns.Some {
		for i := range c.Asked {
			if q := &c.Asked[i]; c.Server == n.ID && q.Parked != nil {
				w.After(c.nthDraw(w, draw.Request, q.nth).Heavy(w.Setting.Net),
					Delivery{Kind: KindArrive, Node: plan.Nobody, A: c.ID, B: uint64(q.Corr), Body: q.Parked})
				q.Parked = nil
			}
		}
	}
}

// pause freezes a process. Hardware operations that the process started continue.
func (n *Node) pause(w *World, x Delivery) {
	if !n.Up || w.Healed {
		return
	}
	w.Result.Fault(w.Source.Faults[x.C].Fault)
	span := effects.Duration(x.B)
	n.Thaw = max(n.Thaw, w.Now+int64(span))
	n.Frozen += int64(span)
	w.Journal.Note(w.Now, KindPause, n.ID, uint64(n.Thaw), 0, 0)
	w.Queue.Push(n.Thaw, Delivery{Kind: KindThaw, Node: n.ID, Life: n.Life})
}

// thaw resumes a process and carries out the deliveries of its backlog in order.
func (n *Node) thaw(w *World) {
	if !n.Up || n.Thaw > w.Now {
		return
	}
	late := n.Backlog
	n.Backlog, n.thawed = n.thawed[:0], nil
	for _, d := range late {
		w.Deliver(d)
	}
	clear(late)
	n.thawed = late[:0]
}

// cutRandomConn breaks a random open connection.
func (w *World) cutSomeConn(x Delivery) {
	var open []*Conn
	for _, c := range w.Going.Conns.Some {
		if !c.Closed && !c.Dead && c.Server != plan.Nobody {
			open = append(open, c)
		}
	}
	if len(open) == 0 || w.Healed {
		return
	}
	c := open[draw.Of(x.A).Below(uint64(len(open)))]
	w.Result.Fault(plan.FaultCutConn)
	w.Journal.Note(w.Now, KindCutConn, c.Client, c.ID, 0, 0)
	w.Cut(c, w.Struck(plan.FaultUnnoticed, c.Name, c.Sent))
}

// cutRandomLink ends a random link that is in use.
func (w *World) cutSomeLink(x Delivery) {
	var open []*Link
	for _, l := range w.Links {
		if !l.Lost && !l.Dropped {
			open = append(open, l)
		}
	}
	if len(open) == 0 || w.Healed {
		return
	}
	l := open[draw.Of(x.A).Below(uint64(len(open)))]
	w.Result.Fault(plan.FaultCutLink)
	w.Journal.Note(w.Now, KindCutLink, l.From, l.ID, 0, 0)
	w.EndLink(w.Nodes[l.From], l, draw.Of(x.A).Again(), true)
}

// noise sends a server bytes that are not a message: random bytes or a truncated message.
func (n *Node) noise(w *World, x Delivery) {
	if !n.Up || w.Healed || n.User && len(n.Listens) == 0 {
		return
	}
	w.Result.Fault(plan.FaultNoise)
	d := draw.Of(x.A)
	var b []byte
	if d.Permille(500) {
		for i := range d.Again().Below(200) {
			b = append(b, byte(draw.Hash(uint64(d), draw.Noise, 1, i)))
		}
	} else {
		b = w.System.ValidRequest()
		b = b[:d.Again().Below(uint64(len(b)))]
	}
	channel := w.AnyPort(n, d.Again().Again())
	w.Journal.Note(w.Now, KindNoise, n.ID, uint64(channel), uint64(len(b)), 0)
	w.Stranger(n, channel, b)
}

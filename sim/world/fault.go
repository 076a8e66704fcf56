package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Trap crashes a node in the middle of a step, or lets its rank fail alone, once it was let pass some times.
type Trap struct {
	plan.Moment
	Skip  uint64
	alone bool
}

// sprung says whether e springs the trap.
func (w *World) sprung(n *Node, e effects.Effect) bool {
	if n.Trap.Effect != plan.EffectAny && n.Trap.Effect != plan.KindOf(e) {
		return false
	}
	if n.Trap.Skip > 0 {
		n.Trap.Skip--
		return false
	}
	return true
}

// Schedule queues the plan's faults. A delivery carries what one needs: a is its pick, b how long it lasts, c its place
// in the plan.
func (w *World) Schedule(faults []plan.Scheduled) {
	for i := range faults {
		f := &faults[i]
		w.Queue.Push(int64(f.At), Delivery{Kind: scheduledKinds[f.Fault], Node: int32(f.Node), A: f.Pick, B: uint64(f.For),
			C: uint64(i)})
	}
}

// scheduledKinds are the deliveries by which scheduled faults start.
var scheduledKinds = map[plan.Fault]Kind{plan.FaultDrain: kindMischief, plan.FaultFreeze: KindPause,
	plan.FaultTwice: kindMischief, plan.FaultPartition: kindMischief, plan.FaultDeafPartition: kindMischief,
	plan.FaultFlapping: kindMischief, plan.FaultReset: kindMischief, plan.FaultSlow: kindMischief,
	plan.FaultHostile: kindMischief, plan.FaultForged: kindMischief, plan.FaultGreedy: kindMischief,
	plan.FaultCrash: kindTrap, plan.FaultAlone: kindTrap, plan.FaultPause: KindPause, plan.FaultCutConn: KindCutConn,
	plan.FaultCutLink: KindCutLink, plan.FaultNoise: KindNoise}

func (w *World) setTrap(n *Node, x Delivery) {
	if !n.Up || w.Healed {
		return
	}
	f := &w.Source.Faults[x.C]
	m, _ := plan.ParseMoment(f.When)
	n.Trap = Trap{m, f.Nth, f.Fault == plan.FaultAlone}
	if !m.Is {
		w.fall(n)
		return
	}
	w.Journal.Note(w.Now, kindTrap, n.ID, uint64(m.Effect), f.Nth, 0)
}

// fall does what the trap is set for.
func (w *World) fall(n *Node) {
	if n.Trap.alone {
		w.failAlone(n)
		return
	}
	w.Crash(n)
}

// Crash ends a life at once: its memory and tables are gone, what it submitted to hardware is not.
func (w *World) Crash(n *Node) {
	if !n.Up || w.Healed {
		n.Trap = Trap{}
		return
	}
	w.Result.Fault(plan.FaultCrash)
	w.Journal.Note(w.Now, KindCrash, n.ID, uint64(n.Life), 0, 0)
	w.die(n)
}

// exit ends the process of a node that has drained.
func (w *World) exit(n *Node) {
	w.Journal.Note(w.Now, KindExit, n.ID, uint64(n.Life), 0, 0)
	w.die(n)
}

func (w *World) die(n *Node) {
	d := w.stop(n)
	w.leaveLinks(n, d)
	w.After(d.Span(10*effects.Millisecond, 1500*effects.Millisecond), Delivery{Kind: KindRestart, Node: n.ID})
}

// stop ends a life's machine, and its connections.
func (w *World) stop(n *Node) draw.Of {
	w.Judges.OnDeath(n)
	n.Up = false
	n.Trap = Trap{}
	n.Thaw = 0
	d := w.draw(draw.Crash, n)
	if w.Careless == PeersUntold {
		return d
	}
	for _, c := range w.Going.Conns.Some {
		if c.Closed {
			continue
		}
		if c.Client == n.ID && c.Life == n.Life {
			c.Closed = true
			w.tellServer(c, false)
		}
		if c.Server == n.ID && c.known == n.Life && c.Waits() > 0 {
			// The request died with its server. Some transports tell, some do not.
			w.Cut(c, w.Struck(plan.FaultUnnoticed, c.Name, c.Sent))
		}
	}
	return d
}

// leaveLinks ends the links of a life whose planes have ended.
func (w *World) leaveLinks(n *Node, d draw.Of) {
	if w.Setting.Communicators && !n.User {
		w.commDied(n)
		return
	}
	for _, l := range w.Links {
		switch {
		case l.From == n.ID && l.FromLife == n.Life && !l.Lost:
			w.EndLink(n, l, d, false)
			l.Dropped = true
		case l.Target != n.Pool || !w.Nodes[l.From].Up || w.Nodes[l.From].Life != l.FromLife:
		case l.Lost:
			w.settleDead(l)
		case n.Pulls && !w.Setting.Leased && w.draw(draw.Notice, w.Nodes[l.From]).Permille(500):
			// Whoever has its memory mapped reads on before he notices.
			w.ForNode(w.Nodes[l.From], d.Again().Again().Heavy(2*w.Setting.Net), Delivery{Kind: KindNoticed, A: l.ID})
		default:
			w.EndLink(w.Nodes[l.From], l, w.draw(draw.Notice, w.Nodes[l.From]), true)
		}
	}
}

// settleDead settles the pushes of a lost link whose target has died meanwhile: no
// process is left that could touch a page.
func (w *World) settleDead(l *Link) {
	for _, t := range w.Going.Transfers.Some {
		if t.Link == l && t.Asked && !t.Settled {
			t.Ended = true
			w.settle(t, effects.PeerLost, 0)
		}
	}
}

func (w *World) restart(n *Node) {
	if n.Up {
		return
	}
	w.shut(n.Pool)
	n.Life++
	w.Journal.Note(w.Now, KindRestart, n.ID, uint64(n.Life), 0, 0)
	if err := w.start(n); err != nil {
		panic("BUG: " + err.Error())
	}
	if n.twice && !w.Healed {
		w.After(w.draw(draw.Crash, n).Span(0, 50*effects.Millisecond),
			Delivery{Kind: kindMischief, Node: n.ID, A: 1, C: n.again})
	}
	n.twice = false
	w.Judges.OnRestart(n)
	w.Tick(n)
	w.tellMissed(n)
	for _, c := range w.Going.Conns.Some {
		for i := range c.Asked {
			if q := &c.Asked[i]; c.Server == n.ID && q.Parked != nil {
				w.After(w.nthDraw(draw.Request, c, q.nth).Heavy(w.Setting.Net),
					Delivery{Kind: KindArrive, Node: plan.Nobody, A: c.ID, B: uint64(q.Corr), Body: q.Parked})
				q.Parked = nil
			}
		}
	}
}

// pause freezes a process; hardware that it started goes on.
func (w *World) pause(n *Node, x Delivery) {
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

// thaw lets a process go on, with all that came meanwhile in the order it came.
func (w *World) thaw(n *Node) {
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

// noise sends a server bytes that are no message: random ones, and cut ones.
func (w *World) noise(n *Node, x Delivery) {
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
		b = w.System.Words.Good()
		b = b[:d.Again().Below(uint64(len(b)))]
	}
	channel := w.AnyPort(n, d.Again().Again())
	w.Journal.Note(w.Now, KindNoise, n.ID, uint64(channel), uint64(len(b)), 0)
	w.Stranger(n, channel, b)
}

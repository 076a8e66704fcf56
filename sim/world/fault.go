package world

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Trap crashes a node in the middle of a step, or lets its rank fail alone, at the first matching effect after Skip
// matching effects.
type Trap struct {
	plan.Moment
	Skip     uint64
	rankOnly bool // the rank fails alone instead of crashing the process
}

// matchEffect reports whether e springs the trap, which must be set. matchEffect counts down Skip.
func (t *Trap) matchEffect(e effects.Effect) bool {
	if o, is := e.(*effects.Observe); is && o.Fact == effects.FactGrantTraced {
		return false // A trace changes nothing, also not the effect at which a node crashes.
	}
	if t.Effect != plan.AnyEffect && t.Effect != effects.KindOf(e) {
		return false
	}
	if t.Skip > 0 {
		t.Skip--
		return false
	}
	return true
}

// QueueFaults queues the plan's scheduled faults. In these deliveries, A is the fault's pick, B its duration, and C its
// place in the plan.
func (w *World) QueueFaults(faults []plan.ScheduledFault) {
	for i := range faults {
		f := &faults[i]
		w.Queue.Push(int64(f.At), Delivery{Kind: faultKinds[f.Fault], Node: int32(f.Node), A: f.Pick, B: uint64(f.For),
			C: uint64(i)})
	}
}

// faultKinds maps each scheduled fault to the kind of delivery by which the fault starts.
var faultKinds = map[plan.Fault]Kind{plan.FaultDrain: kindScheduledFault, plan.FaultFreeze: KindPause,
	plan.FaultDoubleCrash: kindScheduledFault, plan.FaultPartition: kindScheduledFault, plan.FaultOneWayPartition: kindScheduledFault,
	plan.FaultFlappingPartition: kindScheduledFault, plan.FaultConnsReset: kindScheduledFault, plan.FaultSlowNode: kindScheduledFault,
	plan.FaultHostileMessage: kindScheduledFault, plan.FaultDoneForged: kindScheduledFault, plan.FaultGreedyPeer: kindScheduledFault,
	plan.FaultHelloCrowd: kindScheduledFault,
	plan.FaultCrash:      kindTrap, plan.FaultRankAlone: kindTrap, plan.FaultPause: KindPause, plan.FaultCutConn: KindCutConn,
	plan.FaultCutLink: KindCutLink, plan.FaultNoise: KindNoise}

// setTrap starts a fault that waits for its moment in a step.
func (n *Node) setTrap(w *World, x Delivery) {
	if !n.Up || w.Healed {
		return
	}
	f := &w.SourcePlan.Faults[x.C]
	m, _ := plan.ParseMoment(f.When)
	n.Trap = Trap{m, f.Nth, f.Fault == plan.FaultRankAlone}
	if !m.IsSet {
		n.springTrap(w)
		return
	}
	w.Journal.AddLine(w.Now, kindTrap, n.ID, uint64(m.Effect), f.Nth, 0)
}

// springTrap carries out the fault that the trap was set for.
func (n *Node) springTrap(w *World) {
	if n.Trap.rankOnly {
		n.failRankAlone(w)
		return
	}
	w.CrashNode(n)
}

// CrashNode ends an incarnation at once. The memory and tables of the incarnation are lost, but operations that were
// submitted to hardware continue.
func (w *World) CrashNode(n *Node) {
	if !n.Up || w.Healed {
		n.Trap = Trap{}
		return
	}
	w.Result.CountFault(plan.FaultCrash)
	w.Journal.AddLine(w.Now, KindCrash, n.ID, uint64(n.Incarnation), 0, 0)
	n.endProcess(w)
}

// exitProcess ends the process of a node that has drained.
func (n *Node) exitProcess(w *World) {
	w.Journal.AddLine(w.Now, KindExit, n.ID, uint64(n.Incarnation), 0, 0)
	n.endProcess(w)
}

// endProcess ends the process of a node and schedules its restart.
func (n *Node) endProcess(w *World) {
	d := n.stopIncarnation(w)
	n.endLinks(w, d)
	w.QueueAfter(d.Duration(10*effects.Millisecond, 1500*effects.Millisecond), Delivery{Kind: KindRestart, Node: n.ID})
}

// stopIncarnation ends the machine of an incarnation and its connections.
func (n *Node) stopIncarnation(w *World) draw.Value {
	oracle.OnIncarnationEnded.Report(&w.Panel, n.ID, oracle.IncarnationEnded{})
	w.System.VoidCommands(n)
	n.Up = false
	n.Trap = Trap{}
	n.ResumeAt = 0
	d := n.nextDraw(w, draw.Crash)
	if w.DriverMistake == PeersNotNotified {
		return d
	}
	for _, c := range w.Active.Conns.Items {
		if c.Closed {
			continue
		}
		if c.Client == n.ID && c.Incarnation == n.Incarnation {
			c.Closed = true
			c.notifyServer(w, false)
		}
		if c.Server == n.ID && c.serverIncarnation == n.Incarnation && c.PendingCount() > 0 {
			// The request was lost with its server. Only some transports report the loss.
			w.CutConn(c, w.IsStruck(plan.FaultLossUnnoticed, c.Name, c.SentCount))
		}
	}
	return d
}

// endLinks ends the links of an incarnation after its planes have ended.
func (n *Node) endLinks(w *World, d draw.Value) {
	if w.Conditions.Communicators && !n.Custom {
		n.endCommLinks(w)
		return
	}
	for _, l := range w.Links {
		switch {
		case l.From == n.ID && l.FromIncarnation == n.Incarnation && !l.Lost:
			w.EndLink(n, l, d, false)
			l.Dropped = true
		case l.Target != n.Pool || !w.Nodes[l.From].Up || w.Nodes[l.From].Incarnation != l.FromIncarnation:
		case l.Lost:
			l.settleAfterDeath(w)
		case n.OffersChunks && !w.Conditions.Leased && w.Nodes[l.From].nextDraw(w, draw.Notice).ChancePermille(500):
			// A peer that has mapped the memory continues to read until the peer notices the end.
			w.QueueForNode(w.Nodes[l.From], d.Rehash().Rehash().HeavyTail(2*w.Conditions.MessageTime), Delivery{Kind: KindPeerDeathNoticed, A: l.ID})
		default:
			w.EndLink(w.Nodes[l.From], l, w.Nodes[l.From].nextDraw(w, draw.Notice), true)
		}
	}
}

// settleAfterDeath settles the pushes of a lost link if its target has died in the meantime: no process is left that
// could touch a page.
func (l *Link) settleAfterDeath(w *World) {
	for _, t := range w.Active.Transfers.Items {
		if t.Link == l && t.CopyStarted && !t.Settled {
			t.Ended = true
			t.reportSettled(w, effects.PeerLost, 0)
		}
	}
}

// restartNode starts the next incarnation of a node that is down and delivers the messages that waited for the restart.
func (n *Node) restartNode(w *World) {
	if n.Up {
		return
	}
	n.Pool.closePlanes(w)
	n.Incarnation++
	w.Journal.AddLine(w.Now, KindRestart, n.ID, uint64(n.Incarnation), 0, 0)
	if err := n.startIncarnation(w); err != nil {
		panic("BUG: " + err.Error())
	}
	if n.crashesAgain && !w.Healed {
		w.QueueAfter(n.nextDraw(w, draw.Crash).Duration(0, 50*effects.Millisecond),
			Delivery{Kind: kindScheduledFault, Node: n.ID, A: 1, C: n.faultIndex})
	}
	n.crashesAgain = false
	OnNodeRestarted.Report(&w.Panel, n.ID, NodeRestarted{n})
	w.System.HandleRestart(n)
	w.ScheduleTick(n)
	n.deliverMissed(w)
	for _, c := range w.Active.Conns.Items {
		for i := range c.Requests {
			if q := &c.Requests[i]; c.Server == n.ID && q.Parked != nil {
				delay := c.drawNth(w, draw.Request, q.nth).HeavyTail(w.Conditions.MessageTime)
				c.requestsUntil = max(c.requestsUntil, w.Now+int64(delay))
				w.QueueAfter(delay, Delivery{Kind: KindRequestArrives, Node: plan.NoNode, A: c.ID, B: uint64(q.Corr), Body: q.Parked})
				q.Parked = nil
			}
		}
	}
}

// pauseProcess freezes a process. Hardware operations that the process started continue.
func (n *Node) pauseProcess(w *World, x Delivery) {
	if !n.Up || w.Healed {
		return
	}
	w.Result.CountFault(w.SourcePlan.Faults[x.C].Fault)
	span := effects.Duration(x.B)
	n.ResumeAt = max(n.ResumeAt, w.Now+int64(span))
	n.FrozenTime += int64(span)
	w.Journal.AddLine(w.Now, KindPause, n.ID, uint64(n.ResumeAt), 0, 0)
	w.Queue.Push(n.ResumeAt, Delivery{Kind: KindResume, Node: n.ID, Incarnation: n.Incarnation})
}

// resumeProcess resumes a process and carries out the deliveries of its backlog in order. In half of the cases ticks come
// last, because a driver reads its mailbox before it looks at the clock: then the machine handles messages long after
// deadlines that it has not noticed.
func (n *Node) resumeProcess(w *World) {
	if !n.Up || n.ResumeAt > w.Now {
		return
	}
	backlog := n.Backlog
	n.Backlog, n.spareBacklog = n.spareBacklog[:0], nil
	if n.nextDraw(w, draw.Tick).Rehash().ChanceIfRandom(500) {
		slices.SortStableFunc(backlog, func(a, b Delivery) int { return cmp.Compare(tickRank(a), tickRank(b)) })
	}
	for _, d := range backlog {
		w.HandleDelivery(d)
	}
	clear(backlog)
	n.spareBacklog = backlog[:0]
}

func tickRank(d Delivery) int {
	if d.Kind == KindTick {
		return 1
	}
	return 0
}

// cutRandomConn breaks a random open connection.
func (w *World) cutRandomConn(x Delivery) {
	var open []*Conn
	for _, c := range w.Active.Conns.Items {
		if !c.Closed && !c.Dead && c.Server != plan.NoNode {
			open = append(open, c)
		}
	}
	if len(open) == 0 || w.Healed {
		return
	}
	c := open[draw.Value(x.A).Below(uint64(len(open)))]
	w.Result.CountFault(plan.FaultCutConn)
	w.Journal.AddLine(w.Now, KindCutConn, c.Client, c.ID, 0, 0)
	w.CutConn(c, w.IsStruck(plan.FaultLossUnnoticed, c.Name, c.SentCount))
}

// cutRandomLink ends a random link that is in use.
func (w *World) cutRandomLink(x Delivery) {
	var open []*Link
	for _, l := range w.Links {
		if !l.Lost && !l.Dropped {
			open = append(open, l)
		}
	}
	if len(open) == 0 || w.Healed {
		return
	}
	l := open[draw.Value(x.A).Below(uint64(len(open)))]
	w.Result.CountFault(plan.FaultCutLink)
	w.Journal.AddLine(w.Now, KindCutLink, l.From, l.ID, 0, 0)
	w.EndLink(w.Nodes[l.From], l, draw.Value(x.A).Rehash(), true)
}

// receiveNoise sends a server bytes that are not a message: random bytes or a truncated message.
func (n *Node) receiveNoise(w *World, x Delivery) {
	if !n.Up || w.Healed || n.Custom && len(n.Listens) == 0 {
		return
	}
	w.Result.CountFault(plan.FaultNoise)
	d := draw.Value(x.A)
	var b []byte
	if d.ChancePermille(500) {
		for i := range d.Rehash().Below(200) {
			b = append(b, byte(draw.Hash(uint64(d), draw.Noise, 1, i)))
		}
	} else {
		b = w.System.ValidRequest()
		b = b[:d.Rehash().Below(uint64(len(b)))]
	}
	channel := w.PickChannel(n, d.Rehash().Rehash())
	w.Journal.AddLine(w.Now, KindNoise, n.ID, uint64(channel), uint64(len(b)), 0)
	w.SendFromStranger(n, w.DrawStrangerProof(d.Rehash().Rehash().Rehash()), channel, b)
}

// Package world runs state machines in one goroutine on virtual time. The package is a driver of [effects.Machine] and
// models everything around the machines: the event queue, nodes and their incarnations, clocks, control connections,
// data planes and their memory, faults, and the event log.
//
// The package knows neither ranks nor messages. A [System] determines which machines run, and the oracles of the run
// ([World.Panel]) judge the promises. A system contains its world, can see and change everything in the world, and
// keeps further records of a run. Operations on a node, a link, a transfer or a connection are methods of that type,
// which receive the world as an argument.
//
// A system may rely on the following:
//
//   - Nothing happens except the deliveries of the queue, in sequence.
//   - Each effect that has a completion gets its completion exactly once, as package effects requires.
//   - The same plan produces the same event log.
//
// A run has six phases ([World.RunPhases]): faults strike; everything heals; the commands end (L1); new commands prove
// that everything works again (L5); offers and leases expire, after which only ready chunks are left (S17, L2); every
// node drains (L6).
//
// Example: a push on a fenced plane consists of these deliveries.
//
//  1. KindCommand passes the engine's command to the machine of the sender. After an exchange of messages the
//     receiver's machine emits an [effects.Grant], and the sender's machine emits an [effects.Transfer].
//  2. KindSubmit takes the transfer from the queue of the sender's driver, which reads the clock once more.
//  3. KindTransferRequest arrives at the receiver, which compares the transfer with the grant and claims the pages.
//  4. KindCopy moves half a page, so there are two for each page. Before and after each page the receiver verifies that
//     the source page is still what was announced. A crash or a revocation between two halves leaves a torn page, and
//     the oracles verify that a torn page is never delivered.
//  5. KindLanded reports the complete pages to the receiver's machine, which emits an [effects.Confirm].
//  6. KindTransferDone reports the end of the transfer to the sender's machine.
package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// World is the state of a run: the nodes with their machines, clocks, networks, planes and memory, and the faults
// that strike them. Only the system knows what the machines are.
type World struct {
	Seed             uint64       `snap:"skip"`
	SourcePlan       *plan.Plan   `snap:"share"`
	Conditions       conditions   `snap:"share"` // the parts of the plan that concern any system
	System           System       `snap:"share"` // the system that runs in this world, and contains it
	Panel            oracle.Panel // the oracles of this run
	Now              int64        `snap:"skip"`
	Queue            Queue
	Nodes            []*Node                       `snap:"whole"`
	Journal          journal                       `snap:"share"`
	Result           Result                        `snap:"share"`
	Failure          *Failure                      `snap:"share"`
	rulings          map[plan.Strike]*strikeRuling `snap:"share"` // the strikes that the plan decides
	RecordsStrikes   bool                          `snap:"share"`
	partitions       []partition
	hasHostile       bool      `snap:"share"`   // the plan has hostile strangers, which send changed messages
	forbidden        Forbidden `snap:"scratch"` // of the message that is being handled
	repeatUnreported bool      `snap:"scratch"` // the step's message gives a field twice, not yet reported
	Overheard        [][]byte  // messages that a stranger may change and send again
	overheardCount   int       // number of messages overheard so far
	Healed           bool
	DriverMistake    DriverMistake
	failedPools      []*Pool // pools of the ranks that have failed alone, in order

	Buffers   map[effects.BufferID]*Pool `snap:"skip"` // by the buffer id by which machines address the memory
	fillCount uint32                     `snap:"skip"` // number of fills; a fill is what an engine stores at once

	Conns          []*Conn        `snap:"bag"`  // by id-1
	Requests       []Request      `snap:"bag"`  // by id-1
	Links          []*Link        `snap:"bag"`  // by id-1
	Transfers      []*Transfer    `snap:"bag"`  // by id-1
	Copies         []*Copy        `snap:"skip"` // by id-1
	verifications  []verification `snap:"skip"` // by id-1
	Active         activeLists    `snap:"skip"`
	bodyPool       `snap:"scratch"`
	sumBuf         []byte      `snap:"scratch"`
	Arenas         arenas      `snap:"scratch"`
	ProxyHost      string      `snap:"skip"`
	Proxy          int32       `snap:"share"` // receives messages to the proxy; plan.Proxy: the system does
	HasEngines     bool        `snap:"share"` // there are engines that can be notified on [ChannelDispatch]
	Script         eventScript `snap:"share"` // of a test; nil in runs
	countedInstant int64       `snap:"skip"`  // the instant at which still counts deliveries
	instantCount   int         `snap:"skip"`
}

// An eventScript takes the place of the machines and receives their events. Tests use a script to play the scenarios of
// the contract.
type eventScript interface {
	HandleEvent(n *Node, ev effects.Event)
}

// perInstantMax is the maximum number of deliveries at one instant. A machine that exceeds the maximum keeps itself
// busy without time passing.
const perInstantMax = 200_000

// stepsMax is the maximum number of steps of a run. The largest runs take a hundred thousand. Nodes that exceed the
// maximum keep each other busy, for example with a message that each reply sends again.
const stepsMax = 300_000

// busyStepsMax is the maximum number of consecutive steps of a node after which its deadline is immediate. A machine
// divides large work into steps, but the work must end. Time may pass between these steps, so perInstantMax does not
// detect this case.
const busyStepsMax = 1_000

// BeginRun prepares an empty world for a plan. The memory of the coverage in w.Result is used again.
func (w *World) BeginRun(p *plan.Plan, system System) {
	w.System, w.Conditions = system, conditionsOf(p)
	w.Seed, w.SourcePlan, w.ProxyHost = p.Seed, p, "proxy"
	w.Proxy, w.HasEngines = plan.Proxy, true
	w.Result, w.hasHostile = newResult(p, w.Result.Coverage), p.HasHostile()
	w.Buffers = RecycleMap(w.Buffers)
	w.setRulings(p)
}

// StartNodes creates and starts the given number of nodes.
func (w *World) StartNodes(nodes int) error {
	p := w.SourcePlan
	for i := range nodes {
		n := w.addNode()
		n.ID = int32(i)
		w.System.SetRole(n)
		n.Offset = max(1, int64(draw.Hash(w.Seed, draw.Clock, uint64(i), 0).Duration(0, 1000*effects.Second))) // No stamp is 0.
		if i < len(p.Topology.DriftPPM) {
			n.Drift = PPM(p.Topology.DriftPPM[i])
		}
		if err := n.startIncarnation(w); err != nil {
			return err
		}
	}
	return nil
}

// NewFill returns the number of a new fill, which is what an engine stores at once.
func (w *World) NewFill() uint32 { w.fillCount++; return w.fillCount }

// QueueAfter queues x to happen after d.
func (w *World) QueueAfter(d effects.Duration, x Delivery) { w.Queue.Push(w.Now+int64(d), x) }

// QueueForNode queues x for the present incarnation of n.
func (w *World) QueueForNode(n *Node, d effects.Duration, x Delivery) {
	x.Node, x.Incarnation = n.ID, n.Incarnation
	w.QueueAfter(d, x)
}

// A planeQueue is the time at which the last report of one part of a data plane is due: of a link, of the pool or of the
// thread that copies within the node. Reports of one part keep their order. The parts of a real driver report from threads
// of their own, so their reports overtake each other.
type planeQueue int64

// queueInOrder queues a report of n's data plane, behind the earlier reports of the same part.
func (n *Node) queueInOrder(w *World, q *planeQueue, d effects.Duration, x Delivery) {
	*q = max(planeQueue(w.Now+int64(d)), *q)
	x.Node, x.Incarnation = n.ID, n.Incarnation
	w.Queue.Push(int64(*q), x)
}

// endedShift is the number of bits by which C of a KindTransferDone or a kindCopyDone holds the time of the end. The bit
// below says whether the end is settled.
const endedShift = 1

// queueEnd queues the end of a transfer or of a copy. The report states when the end was, and the machine may receive it
// later, for example behind a long batch of other events.
func (n *Node) queueEnd(w *World, q *planeQueue, after effects.Duration, d draw.Value, x Delivery) {
	if !draw.IsFixed(w.Seed) {
		ended := max(planeQueue(w.Now+int64(after)), *q)
		x.C |= uint64(ended) << endedShift
		if d.ChancePermille(100) {
			after = effects.Duration(int64(ended)-w.Now) + d.Rehash().HeavyTail(w.Conditions.MessageTime)
		}
	}
	n.queueInOrder(w, q, after, x)
}

// endTime returns the true time at which the transfer or the copy of a report ended.
func (w *World) endTime(d Delivery) int64 {
	if ended := int64(d.C >> endedShift); ended != 0 {
		return ended
	}
	return w.Now
}

// RunUntil carries out all deliveries up to an instant, or until done returns true.
func (w *World) RunUntil(end int64, done func() bool) {
	for w.Failure == nil && w.Queue.Len() > 0 && w.Queue.NextInstant() <= end {
		if done != nil && done() {
			return
		}
		at, d := w.Queue.Pop()
		if at != w.countedInstant {
			w.countedInstant, w.instantCount = at, 0
		}
		if w.instantCount++; w.instantCount > perInstantMax {
			w.Fail("L1", "the world never becomes idle: time does not advance")
			return
		}
		if w.Result.Steps > stepsMax {
			w.Fail("L1", "the run takes more than %d steps: its nodes keep each other busy without an end", stepsMax)
			return
		}
		w.Now = at
		w.Active.compactLists()
		w.System.CompactLists()
		w.HandleDelivery(d)
		if w.Journal.Observer != nil {
			w.Journal.Observer.AfterDelivery()
		}
	}
	if w.Failure == nil && (done == nil || !done()) {
		w.Now = max(w.Now, end)
	}
}

// HandleDelivery carries out a delivery. Deliveries for an incarnation that has ended are discarded, and deliveries for
// a frozen process are stored in the node's backlog.
func (w *World) HandleDelivery(d Delivery) {
	if d.Node >= 0 {
		n := w.Nodes[d.Node]
		if d.Kind.IsForProcess() && d.Kind != KindStartJob && (d.Incarnation != n.Incarnation || !n.Up) {
			if d.Incarnation == n.Incarnation && n.Pool.state == poolServed && d.Kind.isPlaneWork() {
				w.handleWorldDelivery(d)
			}
			w.RecycleBody(d.Body)
			return
		}
		if d.Kind.IsForProcess() && (n.ResumeAt > w.Now || len(n.Backlog) > 0) {
			n.Backlog = append(n.Backlog, d)
			return
		}
		if d.Kind.IsEvent() {
			n.handleEvent(w, d)
			n.delayNextStep(w)
			return
		}
	}
	w.handleWorldDelivery(d)
}

// handleWorldDelivery carries out a delivery that is not an event of a machine.
func (w *World) handleWorldDelivery(d Delivery) {
	switch d.Kind {
	case KindRequestArrives:
		w.handleRequestArrival(d)
	case KindReplyArrives:
		w.handleReplyArrival(d)
	case KindSubmit:
		w.Transfers[d.A-1].submitNext(w, int(d.B))
	case KindTransferRequest:
		w.Transfers[d.A-1].handleRequest(w)
	case KindCopy:
		if t := w.Transfers[d.A-1]; t.Read {
			t.readHalf(w, int(d.B), int(d.C))
		} else {
			t.copyHalf(w, int(d.B), int(d.C))
		}
	case KindLoad:
		w.Transfers[d.A-1].loadHalf(w, int(d.B), int(d.C))
	case kindMove:
		w.Copies[d.A-1].moveHalf(w, int(d.B), int(d.C))
	case KindPeerDeathNoticed:
		if l, n := w.Links[d.A-1], w.Nodes[d.Node]; !l.Lost && !l.Dropped {
			w.EndLink(n, l, n.nextDraw(w, draw.Notice), true)
		}
	case KindPostArrives:
		w.deliverPost(d)
	case KindStore:
		w.Transfers[d.A-1].storeHalf(w, int(d.B), int(d.C))
	case KindUnmap:
		w.Nodes[d.Node].unmapGrant(w, effects.GrantID(d.A))
	case kindPeerLinkLost:
		w.Nodes[d.Node].handlePeerLoss(w, int32(d.A), uint32(d.B))
	case KindCrash:
		w.CrashNode(w.Nodes[d.Node])
	case KindPlanesClosed:
		w.failedPools[d.A-1].closePlanes(w)
	case KindPoolUnreachable:
		w.retireFailedPool(d.A)
	case kindTrap:
		w.Nodes[d.Node].setTrap(w, d)
	case KindRestart:
		w.Nodes[d.Node].restartNode(w)
	case KindPause:
		w.Nodes[d.Node].pauseProcess(w, d)
	case KindResume:
		w.Nodes[d.Node].resumeProcess(w)
	case KindCutConn:
		w.cutRandomConn(d)
	case KindCutLink:
		w.cutRandomLink(d)
	case KindNoise:
		w.Nodes[d.Node].receiveNoise(w, d)
	case kindScheduledFault:
		w.startFault(d)
	case KindExit:
		if n := w.Nodes[d.Node]; n.Up && n.Incarnation == d.Incarnation {
			n.exitProcess(w)
		}
	default:
		if d.Kind >= KindCommTick && d.Kind <= kindCommRestart {
			w.handleCommDelivery(d)
			return
		}
		w.System.HandleEngineDelivery(d)
	}
}

// stepMachine passes an event to n's machine and carries out the effects of the step.
func (n *Node) stepMachine(w *World, k Kind, ev effects.Event) {
	if w.Script != nil {
		w.Script.HandleEvent(n, ev)
		return
	}
	out := &n.Out
	told, forbidden := ev, w.forbidden
	w.forbidden = Forbidden{}
	if forbidden.Is {
		OnForbiddenMessage.Report(&w.Panel, n.ID, ForbiddenMessage{n, &n.events.received, forbidden})
		k, told = KindTick, &n.events.tick
	}
	OnSteppingMachine.Report(&w.Panel, n.ID, SteppingMachine{n, k, told})
	w.Panel.ReportEvent(n.ID, told)
	n.Machine.Step(w.ReadClock(n), ev, out)
	n.StepCount++
	w.Result.Steps++
	life := n.Incarnation
	if w.Journal.Observer != nil {
		for _, m := range out.Marks() {
			w.Journal.Observer.RecordMark(n.ID, coverage.NameOf(w.System.FirstMarkPoint()+coverage.Point(m)))
		}
	}
	for i := range out.Len() {
		e := out.At(i)
		if reply, is := e.(*effects.Reply); !is || !forbidden.Is || reply.Request != n.events.received.Request {
			OnEffectEmitted.Report(&w.Panel, n.ID, EffectEmitted{n, e})
			w.Panel.ReportEffect(n.ID, e)
		}
		if n.Trap.IsSet && n.Trap.matchEffect(e) {
			if !n.Trap.After {
				n.springTrap(w)
				break
			}
			w.CarryOut(n, e)
			n.springTrap(w)
			break
		}
		w.CarryOut(n, e)
		w.Result.countEffect(n, effects.KindOf(e))
	}
	for _, m := range out.Marks() {
		w.Result.Coverage.Hit(w.System.FirstMarkPoint() + coverage.Point(m))
	}
	if n.Up && n.Incarnation == life {
		n.checkBusy(w)
		if forbidden.Is {
			OnForbiddenEnded.Report(&w.Panel, n.ID, ForbiddenEnded{n, &n.events.received, out, forbidden})
		}
		oracle.OnStepEnded.Report(&w.Panel, n.ID, oracle.StepEnded{Event: told, Effects: out})
	}
	out.Scribble()
	out.Reset()
	if n.Up && n.Incarnation == life {
		checkIdle(w, n)
		w.ScheduleTick(n)
	}
}

// idleEvery is the number of steps of a run after which one machine that reports no immediate work is verified by an
// additional tick.
const idleEvery = 4

var checkIdleMachine = oracle.NewCheck("L2", "idle machines")

// checkIdle ticks n's machine once more at the same instant. An unnecessary tick is always allowed, and a machine
// without immediate work must do nothing in it. This verifies that no work that is possible now waits for an unrelated
// event (L2).
func checkIdle(w *World, n *Node) {
	if n.Busy || n.Custom || draw.IsFixed(w.Seed) || w.Result.Steps%idleEvery != 0 || w.Failure != nil {
		return
	}
	w.CountJudged(checkIdleMachine)
	out := &n.Out
	n.Machine.Step(w.ReadClock(n), &n.events.tick, out)
	if out.Len() > 0 {
		w.FailCheck(checkIdleMachine, "node %d reports no work before its next deadline, but then emits %d effects at once, "+
			"the first of them %s", n.AsSubject(), out.Len(), effects.KindOf(out.At(0)))
	}
	out.Reset()
}

// checkBusy records whether n's machine has more work at this instant.
func (n *Node) checkBusy(w *World) {
	t, ok := n.Machine.Deadline()
	if n.Busy = ok && t <= w.ReadClock(n); !n.Busy {
		n.busySteps = 0
		return
	}
	if n.busySteps++; n.busySteps > busyStepsMax && !n.Custom {
		w.Fail("L1", "node %d never becomes idle: its deadline is immediate after each of %d steps", n.AsSubject(), n.busySteps)
	}
}

// ScheduleTick keeps one tick outstanding for the machine's deadline. The outstanding tick may be earlier than the
// deadline; the machine must tolerate such an unnecessary tick.
func (w *World) ScheduleTick(n *Node) {
	t, ok := n.Machine.Deadline()
	if !ok {
		return
	}
	if n.TickAt != 0 && (n.TickAt <= w.Now || n.ReadingAt(n.TickAt-1) < t) {
		return // The outstanding tick comes no later than the deadline.
	}
	at := max(n.InstantOf(t), w.Now)
	delay := effects.Duration(0)
	switch d := n.nextDraw(w, draw.Tick); {
	case n.Busy && d.ChancePermille(200):
		// The rest of a long step: a driver reads its mailbox between two parts.
		delay = d.Rehash().Duration(0, w.Conditions.MessageTime/8)
	case d.ChancePermille(100):
		delay = d.Rehash().Duration(0, effects.Millisecond)
	}
	n.TickGen++
	n.TickAt = at + int64(delay)
	w.QueueForNode(n, effects.Duration(n.TickAt-w.Now), Delivery{Kind: KindTick, A: n.TickGen})
}

// bodyPool holds the memory of messages that are no longer read.
type bodyPool struct{ spare [][]byte }

// CopyBody returns a copy of a message, which is valid until RecycleBody is called with the copy.
func (x *bodyPool) CopyBody(b []byte) []byte {
	if n := len(x.spare); n > 0 {
		s := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return append(s[:0], b...)
	}
	return append(make([]byte, 0, max(512, len(b))), b...)
}

// RecycleBody overwrites a body that was borrowed for a step, which exposes machines that kept a reference to the body.
func (x *bodyPool) RecycleBody(b []byte) {
	if b == nil {
		return
	}
	for rest := b; len(rest) > 0; {
		rest = rest[copy(rest, scribble[:]):]
	}
	x.spare = append(x.spare, b)
}

var scribble = func() (g [1024]byte) {
	for i := range g {
		g[i] = 0xDB
	}
	return g
}()

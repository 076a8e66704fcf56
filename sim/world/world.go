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
// A run has six phases ([World.Live]): faults strike; everything heals; the commands end (L1); new commands prove that
// everything works again (L5); offers and leases expire, after which only ready chunks are left (S17, L2); every node
// drains (L6).
//
// Example: a push on a fenced plane consists of these deliveries.
//
//  1. KindCommand passes the engine's command to the machine of the sender. After an exchange of messages the
//     receiver's machine emits an [effects.Grant], and the sender's machine emits an [effects.Transfer].
//  2. KindSubmit takes the transfer from the queue of the sender's driver, which reads the clock once more.
//  3. KindAsk arrives at the receiver, which compares the transfer with the grant and claims the pages.
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
	Seed      uint64       `snap:"skip"`
	Source    *plan.Plan   `snap:"share"`
	Setting   setting      `snap:"share"` // the parts of the plan that concern any system
	System    System       `snap:"share"` // the system that runs in this world, and contains it
	Panel     oracle.Panel // the oracles of this run
	Now       int64        `snap:"skip"`
	Queue     Queue
	Nodes     []*Node                 `snap:"whole"`
	Journal   journal                 `snap:"share"`
	Result    Result                  `snap:"share"`
	Failure   *Failure                `snap:"share"`
	rulings   map[plan.Strike]*ruling `snap:"share"` // the strikes that the plan decides
	Recording bool                    `snap:"share"`
	walls     []wall
	hostile   bool     `snap:"share"`   // the plan has hostile strangers, which send changed messages
	unread    bool     `snap:"scratch"` // the step's message gives a field twice, not yet reported
	Overheard [][]byte // messages that a stranger may change and send again
	heard     int      // number of messages overheard so far
	Healed    bool
	Careless  Carelessness
	alone     []*Pool // pools of the ranks that have failed alone, in order

	Buffers map[effects.BufferID]*Pool `snap:"skip"` // by the buffer id by which machines address the memory
	fills   uint32                     `snap:"skip"` // number of fills; a fill is what an engine stores at once

	Conns     []*Conn     `snap:"bag"`  // by id-1
	Requests  []Request   `snap:"bag"`  // by id-1
	Links     []*Link     `snap:"bag"`  // by id-1
	Transfers []*Transfer `snap:"bag"`  // by id-1
	Copies    []*Copy     `snap:"skip"` // by id-1
	Going     goings      `snap:"skip"`
	bodies    `snap:"scratch"`
	Stock     stock  `snap:"scratch"`
	ProxyHost string `snap:"skip"`
	Proxy     int32  `snap:"share"` // receives messages to the proxy; plan.Proxy: the system does
	Engines   bool   `snap:"share"` // there are engines that can be notified on [ChannelDispatch]
	Script    script `snap:"share"` // of a test; nil in runs
	stillAt   int64  `snap:"skip"`  // the instant at which still counts deliveries
	still     int    `snap:"skip"`
}

// An eventScript takes the place of the machines and receives their events. Tests use a script to play the scenarios of
// the contract.
type script interface {
	Told(n *Node, ev effects.Event)
}

// stillMax is the maximum number of deliveries at one instant. A machine that exceeds the maximum keeps itself busy
// without time passing.
const stillMax = 200_000

// busyMax is the maximum number of consecutive steps of a node after which its deadline is immediate. A machine divides
// large work into steps, but the work must end. Time may pass between these steps, so stillMax does not detect this
// case.
const busyMax = 1_000

// Begin prepares an empty world for a plan. The memory of the coverage in w.Result is used again.
func (w *World) Begin(p *plan.Plan, of System) {
	w.System, w.Setting = of, conditionsOf(p)
	w.Seed, w.Source, w.ProxyHost = p.Seed, p, "proxy"
	w.Proxy, w.Engines = plan.Proxy, true
	w.Result, w.hostile = newResult(p, w.Result.Coverage), p.Hostile()
	w.Buffers = Emptied(w.Buffers)
	w.rule(p)
}

// Populate creates and starts the given number of nodes.
func (w *World) Populate(nodes int) error {
	p := w.Source
	for i := range nodes {
		n := w.addNode()
		n.ID = int32(i)
		w.System.Cast(n)
		n.Offset = max(1, int64(draw.Hash(w.Seed, draw.Clock, uint64(i), 0).Span(0, 1000*effects.Second))) // No stamp is 0.
		if i < len(p.Topology.DriftPPM) {
			n.Drift = PPM(p.Topology.DriftPPM[i])
		}
		if err := n.start(w); err != nil {
			return err
		}
	}
	return nil
}

// NewFill returns the number of a new fill, which is what an engine stores at once.
func (w *World) NewFill() uint32 { w.fills++; return w.fills }

// After queues x to happen after d.
func (w *World) After(d effects.Duration, x Delivery) { w.Queue.Push(w.Now+int64(d), x) }

// ForNode queues x for the present incarnation of n.
func (w *World) ForNode(n *Node, d effects.Duration, x Delivery) {
	x.Node, x.Life = n.ID, n.Life
	w.After(d, x)
}

// inOrder queues a completion of n's data plane. Completions of the same node never overtake each other.
func (n *Node) inOrder(w *World, d effects.Duration, x Delivery) {
	at := max(w.Now+int64(d), n.planeAt)
	n.planeAt = at
	x.Node, x.Life = n.ID, n.Life
	w.Queue.Push(at, x)
}

// RunUntil carries out all deliveries up to an instant, or until done returns true.
func (w *World) RunUntil(end int64, done func() bool) {
	for w.Failure == nil && w.Queue.Len() > 0 && w.Queue.Next() <= end {
		if done != nil && done() {
			return
		}
		at, d := w.Queue.Pop()
		if at != w.stillAt {
			w.stillAt, w.still = at, 0
		}
		if w.still++; w.still > stillMax {
			w.Fail("L1", "the world keeps busy without time passing")
			return
		}
		w.Now = at
		w.Going.tidy()
		w.System.Tidy()
		w.Deliver(d)
		if w.Journal.Rec != nil {
			w.Journal.Rec.Look()
		}
	}
	if w.Failure == nil && (done == nil || !done()) {
		w.Now = max(w.Now, end)
	}
}

// Deliver carries out a delivery. Deliveries for an incarnation that has ended are discarded, and deliveries for a
// frozen process are stored in the node's backlog.
func (w *World) Deliver(d Delivery) {
	if d.Node >= 0 {
		n := w.Nodes[d.Node]
		if d.Kind.OfProcess() && d.Kind != KindStart && (d.Life != n.Life || !n.Up) {
			if d.Life == n.Life && n.Pool.after == afterServed && d.Kind.planes() {
				w.act(d)
			}
			w.Recycle(d.Body)
			return
		}
		if d.Kind.OfProcess() && (n.Thaw > w.Now || len(n.Backlog) > 0) {
			n.Backlog = append(n.Backlog, d)
			return
		}
		if d.Kind <= KindDropped {
			n.event(w, d)
			n.drag(w)
			return
		}
	}
	w.act(d)
}

// act carries out a delivery that is not an event of a machine.
func (w *World) act(d Delivery) {
	switch d.Kind {
	case KindArrive:
		w.arrive(d)
	case KindAnswer:
		w.answer(d)
	case KindSubmit:
		w.Transfers[d.A-1].submit(w, int(d.B))
	case KindAsk:
		w.Transfers[d.A-1].ask(w)
	case KindCopy:
		if t := w.Transfers[d.A-1]; t.Read {
			t.readHalf(w, int(d.B), int(d.C))
		} else {
			t.copyHalf(w, int(d.B), int(d.C))
		}
	case KindLoad:
		w.Transfers[d.A-1].loadHalf(w, int(d.B), int(d.C))
	case kindMove:
		w.Copies[d.A-1].move(w, int(d.B), int(d.C))
	case KindNoticed:
		if l, n := w.Links[d.A-1], w.Nodes[d.Node]; !l.Lost && !l.Dropped {
			w.EndLink(n, l, n.draw(w, draw.Notice), true)
		}
	case KindTold:
		w.told(d)
	case KindStore:
		w.Transfers[d.A-1].storeHalf(w, int(d.B), int(d.C))
	case KindUnmap:
		w.Nodes[d.Node].unmap(w, effects.GrantID(d.A))
	case kindSever:
		w.Nodes[d.Node].sever(w, int32(d.A), uint32(d.B))
	case KindCrash:
		w.Crash(w.Nodes[d.Node])
	case KindShut:
		w.alone[d.A-1].shut(w)
	case KindKept:
		w.keep(d.A)
	case kindTrap:
		w.Nodes[d.Node].setTrap(w, d)
	case KindRestart:
		w.Nodes[d.Node].restart(w)
	case KindPause:
		w.Nodes[d.Node].pause(w, d)
	case KindThaw:
		w.Nodes[d.Node].thaw(w)
	case KindCutConn:
		w.cutSomeConn(d)
	case KindCutLink:
		w.cutSomeLink(d)
	case KindNoise:
		w.Nodes[d.Node].noise(w, d)
	case kindMischief:
		w.mischief(d)
	case KindExit:
		if n := w.Nodes[d.Node]; n.Up && n.Life == d.Life {
			n.exit(w)
		}
	default:
		if d.Kind >= KindCommTick && d.Kind <= kindCommRestart {
			w.commAct(d)
			return
		}
		w.System.Act(d)
	}
}

// step passes an event to n's machine and carries out the effects of the step.
func (n *Node) step(w *World, k Kind, ev effects.Event) {
	if w.Script != nil {
		w.Script.Told(n, ev)
		return
	}
	out := &n.Out
	OnStepping.Report(&w.Panel, n.ID, Stepping{n, k, ev})
	w.Panel.ReportEvent(n.ID, ev)
	n.Machine.Step(w.Clock(n), ev, out)
	n.Steps++
	w.Result.Steps++
	life := n.Life
	for i := range out.Len() {
		e := out.At(i)
		OnWanted.Report(&w.Panel, n.ID, Wanted{n, e})
		w.Panel.ReportEffect(n.ID, e)
		if n.Trap.Is && n.Trap.sprung(e) {
			if !n.Trap.After {
				n.fall(w)
				break
			}
			w.Carry(n, e)
			n.fall(w)
			break
		}
		w.Carry(n, e)
		w.Result.effect(n, effects.KindOf(e))
	}
	for _, m := range out.Marks() {
		w.Result.Coverage.Hit(w.System.PointMark() + coverage.Point(m))
	}
	if n.Up && n.Life == life {
		n.noteBusy(w)
		oracle.OnStepped.Report(&w.Panel, n.ID, oracle.Stepped{Event: ev, Effects: out})
	}
	out.Scribble()
	out.Reset()
	if n.Up && n.Life == life {
		idle(w, n)
		w.Tick(n)
	}
}

// idleEvery is the number of steps of a run after which one machine that reports no immediate work is verified by an
// additional tick.
const idleEvery = 4

// idle ticks n's machine once more at the same instant. An unnecessary tick is always allowed, and a machine without
// immediate work must do nothing in it. This verifies that no work that is possible now waits for an unrelated event
// (L2).
func idle(w *World, n *Node) {
	if n.Busy || n.User || w.Seed >= draw.RestlessSeed || w.Result.Steps%idleEvery != 0 || w.Failure != nil {
		return
	}
	out := &n.Out
	n.Machine.Step(w.Clock(n), &n.events.tick, out)
	if out.Len() > 0 {
		w.Fail("L2", "node %d says that it has nothing to do before its next deadline, and then wants %d effects at once, "+
			"the first of them %s", n.It(), out.Len(), effects.KindOf(out.At(0)))
	}
	out.Reset()
}

// noteBusy records whether n's machine has more work at this instant.
func (n *Node) noteBusy(w *World) {
	t, ok := n.Machine.Deadline()
	if n.Busy = ok && t <= w.Clock(n); !n.Busy {
		n.busy = 0
		return
	}
	if n.busy++; n.busy > busyMax && !n.User {
		w.Fail("L1", "node %d keeps busy: its deadline is at once after each of %d steps", n.It(), n.busy)
	}
}

// Tick keeps one tick outstanding for the machine's deadline. The outstanding tick may be earlier than the deadline;
// the machine must tolerate such an unnecessary tick.
func (w *World) Tick(n *Node) {
	t, ok := n.Machine.Deadline()
	if !ok {
		return
	}
	if n.TickAt != 0 && (n.TickAt <= w.Now || n.Shows(n.TickAt-1) < t) {
		return // The outstanding tick comes no later than the deadline.
	}
	at := max(n.When(t), w.Now)
	late := effects.Duration(0)
	if d := n.draw(w, draw.Tick); d.Permille(100) {
		late = d.Again().Span(0, effects.Millisecond)
	}
	n.TickGen++
	n.TickAt = at + int64(late)
	w.ForNode(n, effects.Duration(n.TickAt-w.Now), Delivery{Kind: KindTick, A: n.TickGen})
}

// bodies holds the memory of messages that are no longer read.
type bodies struct{ spare [][]byte }

// CopyBody returns a copy of a message, which is valid until RecycleBody is called with the copy.
func (x *bodies) Body(b []byte) []byte {
	if n := len(x.spare); n > 0 {
		s := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return append(s[:0], b...)
	}
	return append(make([]byte, 0, max(512, len(b))), b...)
}

// RecycleBody overwrites a body that was borrowed for a step, which exposes machines that kept a reference to the body.
func (x *bodies) Recycle(b []byte) {
	if b == nil {
		return
	}
	for rest := b; len(rest) > 0; {
		rest = rest[copy(rest, garbage[:]):]
	}
	x.spare = append(x.spare, b)
}

var garbage = func() (g [1024]byte) {
	for i := range g {
		g[i] = 0xDB
	}
	return g
}()

// Package world runs machines in one goroutine on virtual time: the queue of what happens, nodes and their
// incarnations, clocks, control connections, data planes and the memory that they touch, faults, and the event log. It
// is a driver as [effects.Machine] wants one. It knows no rank and no message: what runs in it says a [System], and
// what is promised of it, the oracles of a run ([World.Panel]). A system sees all of its world and may
// change it; what it must remember of a run it keeps beside it. What becomes of a node, a link, a transfer or a
// connection is that one's own method, which is given the world.
//
// A system may rely on this: nothing happens but what the queue holds, one after the other; each effect that has a
// completion gets it once, as package effects says; and the same plan gives the same event log.
package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// World is one run: nodes with their machines, clocks, networks, planes and memory, and what goes wrong with them. What
// the machines are is the system's to know.
type World struct {
	Seed      uint64       `snap:"skip"`
	Source    *plan.Plan   `snap:"share"`
	Setting   setting      `snap:"share"` // what the source says of all that
	System    *System      `snap:"share"` // what runs here
	Side      any          `snap:"share"` // the system's side of this run, which has the world in it
	Panel     oracle.Panel // the oracles of this run
	Now       int64        `snap:"skip"`
	Queue     Queue
	Nodes     []*Node                 `snap:"whole"`
	Journal   journal                 `snap:"share"`
	Result    Result                  `snap:"share"`
	Failure   *Failure                `snap:"share"`
	rulings   map[plan.Strike]*ruling `snap:"share"` // of the plan
	Recording bool                    `snap:"share"`
	walls     []wall
	hostile   bool     `snap:"share"`   // the plan has strangers that send changed messages
	unread    bool     `snap:"scratch"` // the step's message gives a field twice, and that was not said
	Overheard [][]byte // messages that a stranger may change and send again
	heard     int      // how many there ever were
	Healed    bool
	Careless  Carelessness
	alone     []*Pool // of ranks that have failed alone, in order

	Buffers map[effects.BufferID]*Pool `snap:"skip"` // by what machines call their memory
	fills   uint32                     `snap:"skip"` // how often an engine stored something, in one go each

	Conns     []*Conn     `snap:"bag"`  // by id-1
	Requests  []Request   `snap:"bag"`  // by id-1
	Links     []*Link     `snap:"bag"`  // by id-1
	Transfers []*Transfer `snap:"bag"`  // by id-1
	Copies    []*Copy     `snap:"skip"` // by id-1
	Going     goings      `snap:"skip"`
	bodies    `snap:"scratch"`
	Stock     stock  `snap:"scratch"`
	ProxyHost string `snap:"skip"`
	Proxy     int32  `snap:"share"` // the node that hears what is told to it; plan.Proxy: the system
	Engines   bool   `snap:"share"` // there are some who can be asked
	Script    script `snap:"share"` // of a test; nil in runs
	stillAt   int64  `snap:"skip"`  // the instant that stillSteps counts
	still     int    `snap:"skip"`
}

// A script stands in for the machines: it takes the events that are theirs. Tests that
// play the contract's scenarios have one.
type script interface {
	Told(n *Node, ev effects.Event)
}

// stillMax is how many deliveries may happen at one instant: more is a machine that
// keeps itself busy without time passing.
const stillMax = 200_000

// busyMax is how many steps of a node may follow each other with its deadline at once. A machine cuts what is much into
// steps; each has an end. Time may pass between them, so stillMax does not see it.
const busyMax = 1_000

// Begin makes a world that is empty ready for a plan, in which a system runs, whose side of it is given, too. What
// coverage its result has may be used again.
func (w *World) Begin(p *plan.Plan, of *System, side any) {
	w.System, w.Side, w.Setting = of, side, conditionsOf(p)
	w.Seed, w.Source, w.ProxyHost = p.Seed, p, "proxy"
	w.Proxy, w.Engines = plan.Proxy, true
	w.Result, w.hostile = newResult(p, w.Result.Coverage), p.Hostile()
	w.Buffers = Emptied(w.Buffers)
	w.rule(p)
}

// Populate starts the nodes of the plan.
func (w *World) Populate(nodes int) error {
	p := w.Source
	for i := range nodes {
		n := w.addNode()
		n.ID = int32(i)
		w.System.Cast(w, p, n)
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

// NewFill numbers what one engine stores in one go.
func (w *World) NewFill() uint32 { w.fills++; return w.fills }

func (w *World) After(d effects.Duration, x Delivery) { w.Queue.Push(w.Now+int64(d), x) }

// ForNode queues x for this life of n.
func (w *World) ForNode(n *Node, d effects.Duration, x Delivery) {
	x.Node, x.Life = n.ID, n.Life
	w.After(d, x)
}

// inOrder queues a completion of n's data plane; they never overtake each other.
func (n *Node) inOrder(w *World, d effects.Duration, x Delivery) {
	at := max(w.Now+int64(d), n.planeAt)
	n.planeAt = at
	x.Node, x.Life = n.ID, n.Life
	w.Queue.Push(at, x)
}

// RunUntil delivers everything up to an instant, or until done says so.
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
		w.System.Tidy(w)
		w.Deliver(d)
		if w.Journal.Rec != nil {
			w.Journal.Rec.Look()
		}
	}
	if w.Failure == nil && (done == nil || !done()) {
		w.Now = max(w.Now, end)
	}
}

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

// act does what is no event of a machine.
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
		w.System.Engine.Act(w, d)
	}
}

// step gives n's machine one event and carries out what it wants.
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
		w.Result.effect(n, w.Carry(n, e))
	}
	for _, m := range out.Marks() {
		w.Result.Coverage.Hit(w.System.Marks + coverage.Point(m))
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

// idleEvery is after how many steps of a run a machine that says that it has no more to do now is taken at its word.
const idleEvery = 4

// idle ticks n's machine once more, at the same instant: a tick that nobody needs is allowed at any time, and who has
// no more work does nothing for it. So nothing that could be done now waits for the next event, whatever that is about.
func idle(w *World, n *Node) {
	if n.Busy || n.User || w.Seed >= draw.RestlessSeed || w.Result.Steps%idleEvery != 0 || w.Failure != nil {
		return
	}
	out := &n.Out
	n.Machine.Step(w.Clock(n), &n.events.tick, out)
	if out.Len() > 0 {
		w.Fail("L2", "node %d says that it has nothing to do before its next deadline, and then wants %d effects at once, "+
			"the first of them %s", n.It(), out.Len(), plan.KindOf(out.At(0)))
	}
	out.Reset()
}

// noteBusy notes whether n's machine has work left of this very instant.
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

// Tick keeps one tick outstanding for the machine's deadline, or one that is earlier: then the machine is ticked
// without need, which it must bear.
func (w *World) Tick(n *Node) {
	t, ok := n.Machine.Deadline()
	if !ok {
		return
	}
	if n.TickAt != 0 && (n.TickAt <= w.Now || n.Shows(n.TickAt-1) < t) {
		return // It comes no later than it must.
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

// bodies are the memory of messages that nobody reads any more.
type bodies struct{ spare [][]byte }

// Body is a copy of a message, until Recycle.
func (x *bodies) Body(b []byte) []byte {
	if n := len(x.spare); n > 0 {
		s := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return append(s[:0], b...)
	}
	return append(make([]byte, 0, max(512, len(b))), b...)
}

// Recycle overwrites a body that was borrowed for one step, to expose who kept it.
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

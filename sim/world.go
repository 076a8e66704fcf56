package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// world is one run.
type world struct {
	seed        uint64     `snap:"skip"`
	source      *plan.Plan `snap:"share"`
	plan        setting    `snap:"share"` // what the source says
	system      *system    `snap:"share"` // what runs here
	cast        cast       `snap:"share"` // who takes part
	now         int64      `snap:"skip"`
	queue       queue
	nodes       []*node `snap:"whole"`
	journal     journal `snap:"share"`
	oracles     oracles
	judges      []oracle.Judge          // of users
	result      Result                  `snap:"share"`
	failure     *Failure                `snap:"share"`
	rulings     map[plan.Strike]*ruling `snap:"share"` // of the plan
	recording   bool                    `snap:"share"`
	watchers    []watched               `snap:"share"`
	walls       []wall
	plainWrites []plainWrite
	reader      plainReader `snap:"share"`
	hostile     bool        `snap:"share"`   // the plan has strangers that send changed messages
	unread      bool        `snap:"scratch"` // the step's message gives a field twice, and that was not said
	rewritten   []byte      `snap:"scratch"` // the newest message in other forms
	overheard   [][]byte    // messages that a stranger may change and send again
	heard       int         // how many there ever were
	healed      bool
	careless    carelessness
	alone       []*pool // of ranks that have failed alone, in order
	parted      bool    // a put that was a part of a call has ended in this step

	conns      []*conn     `snap:"bag"`  // by id-1
	requests   []request   `snap:"bag"`  // by id-1
	links      []*link     `snap:"bag"`  // by id-1
	transfers  []*transfer `snap:"bag"`  // by id-1
	offloads   []*offload  `snap:"skip"` // by id-1
	jobs       []job
	commands   []command          `snap:"bag"` // by ticket-1
	going      goings             `snap:"skip"`
	spareBody  [][]byte           `snap:"scratch"`
	stock      stock              `snap:"scratch"`
	proxyHost  string             `snap:"skip"`
	given      [plan.Wants]uint32 `snap:"skip"` // commands that are for no job
	unfinished int                // engine commands without their Deliver or Return
	script     script             `snap:"share"` // of a test; nil in runs
	stillAt    int64              `snap:"skip"`  // the instant that stillSteps counts
	still      int                `snap:"skip"`
}

// A script stands in for the machines: it takes the events that are theirs. Tests that
// play the contract's scenarios have one.
type script interface {
	told(n *node, ev effects.Event)
}

// stillMax is how many deliveries may happen at one instant: more is a machine that
// keeps itself busy without time passing.
const stillMax = 200_000

func newWorld(o Options, p *plan.Plan) (*world, error) {
	w := &world{}
	return w, w.begin(o, p)
}

// begin makes a world that is empty ready for a plan.
func (w *world) begin(o Options, p *plan.Plan) error {
	c, err := o.System.castOf(p)
	if err != nil {
		return err
	}
	w.system, w.cast = &pdSystem, c
	if len(c.own) > 0 {
		w.system = &ownSystem
		w.judge(o.System)
	}
	w.seed, w.source, w.plan, w.proxyHost, w.recording = p.Seed, p, settingOf(p), "proxy", o.Strikes
	w.result, w.hostile = newResult(p), p.Hostile()
	w.rule(p)
	w.watch(o.Properties)
	w.careless = o.careless
	w.journal.sink = o.Log
	w.oracles.begin(w)
	for i := range w.cast.nodes() {
		n := w.addNode()
		n.id = int32(i)
		w.system.cast(w, p, n)
		n.offset = max(1, int64(draw.Hash(w.seed, draw.Clock, uint64(i), 0).Span(0, 1000*effects.Second))) // No stamp is 0.
		if i < len(p.Topology.DriftPPM) {
			n.drift = ppm(p.Topology.DriftPPM[i])
		}
		if err := w.start(n); err != nil {
			return err
		}
	}
	if o.Record {
		w.journal.rec = newRecorder(w)
		w.journal.rec.begin()
	}
	w.system.engine.begin(w)
	w.schedule(p.Faults)
	return nil
}

func (w *world) after(d effects.Duration, x delivery) { w.queue.push(w.now+int64(d), x) }

// forNode queues x for this life of n.
func (w *world) forNode(n *node, d effects.Duration, x delivery) {
	x.node, x.life = n.id, n.life
	w.after(d, x)
}

// inOrder queues a completion of n's data plane; they never overtake each other.
func (w *world) inOrder(n *node, d effects.Duration, x delivery) {
	at := max(w.now+int64(d), n.planeAt)
	n.planeAt = at
	x.node, x.life = n.id, n.life
	w.queue.push(at, x)
}

// runUntil delivers everything up to an instant, or until done says so.
func (w *world) runUntil(end int64, done func() bool) {
	for w.failure == nil && w.queue.len() > 0 && w.queue.next() <= end {
		if done != nil && done() {
			return
		}
		at, d := w.queue.pop()
		if at != w.stillAt {
			w.stillAt, w.still = at, 0
		}
		if w.still++; w.still > stillMax {
			w.fail("L1", "the world keeps busy without time passing")
			return
		}
		w.now = at
		w.going.tidy(w)
		w.deliver(d)
		w.journal.rec.look()
	}
	if w.failure == nil && (done == nil || !done()) {
		w.now = max(w.now, end)
	}
}

func (w *world) deliver(d delivery) {
	if d.node >= 0 {
		n := w.nodes[d.node]
		if d.kind.ofProcess() && d.kind != kindStart && (d.life != n.life || !n.up) {
			if d.life == n.life && n.pool.after == afterServed && d.kind.planes() {
				w.act(d)
			}
			w.recycle(d.body)
			return
		}
		if d.kind.ofProcess() && (n.thaw > w.now || len(n.backlog) > 0) {
			n.backlog = append(n.backlog, d)
			return
		}
		if d.kind <= kindDropped {
			w.event(n, d)
			w.drag(n)
			return
		}
	}
	w.act(d)
}

// act does what is no event of a machine.
func (w *world) act(d delivery) {
	switch d.kind {
	case kindArrive:
		w.arrive(d)
	case kindAnswer:
		w.answer(d)
	case kindSubmit:
		w.submit(w.transfers[d.a-1], int(d.b))
	case kindAsk:
		w.ask(w.transfers[d.a-1])
	case kindCopy:
		if t := w.transfers[d.a-1]; t.read {
			w.readHalf(t, int(d.b), int(d.c))
		} else {
			w.copyHalf(t, int(d.b), int(d.c))
		}
	case kindLoad:
		w.loadHalf(w.transfers[d.a-1], int(d.b), int(d.c))
	case kindMove:
		w.move(w.offloads[d.a-1], int(d.b), int(d.c))
	case kindNoticed:
		if l, n := w.links[d.a-1], w.nodes[d.node]; !l.lost && !l.dropped {
			w.endLink(n, l, w.draw(draw.Notice, n), true)
		}
	case kindTold:
		w.told(d)
	case kindStore:
		w.storeHalf(w.transfers[d.a-1], int(d.b), int(d.c))
	case kindUnmap:
		w.unmap(w.nodes[d.node], effects.GrantID(d.a))
	case kindSever:
		w.sever(w.nodes[d.node], int32(d.a), uint32(d.b))
	case kindCrash:
		w.crash(w.nodes[d.node])
	case kindShut:
		w.shut(w.alone[d.a-1])
	case kindKept:
		w.keep(d.a)
	case kindTrap:
		w.setTrap(w.nodes[d.node], d)
	case kindRestart:
		w.restart(w.nodes[d.node])
	case kindPause:
		w.pause(w.nodes[d.node], d)
	case kindThaw:
		w.thaw(w.nodes[d.node])
	case kindCutConn:
		w.cutSomeConn(d)
	case kindCutLink:
		w.cutSomeLink(d)
	case kindNoise:
		w.noise(w.nodes[d.node], d)
	case kindMischief:
		w.mischief(d)
	case kindExit:
		if n := w.nodes[d.node]; n.up && n.life == d.life {
			w.exit(n)
		}
	default:
		if d.kind >= kindCommTick && d.kind <= kindCommRestart {
			w.commAct(d)
			return
		}
		w.system.engine.act(w, d)
	}
}

// step gives n's machine one event and carries out what it wants.
func (w *world) step(n *node, k kind, ev effects.Event) {
	if w.script != nil {
		w.script.told(n, ev)
		return
	}
	out := &n.out
	w.count(n, k, ev)
	w.heardBy(n, ev)
	w.oracles.beforeStep(n)
	n.machine.Step(w.clock(n), ev, out)
	n.steps++
	w.result.Steps++
	life := n.life
	for i := range out.Len() {
		e := out.At(i)
		w.heardBy(n, e)
		if n.trap.Is && w.sprung(n, e) {
			if !n.trap.After {
				w.fall(n)
				break
			}
			w.carry(n, e)
			w.fall(n)
			break
		}
		w.result.effect(n, w.carry(n, e))
	}
	if n.own == nil {
		for _, m := range out.Marks() {
			w.result.mark(m)
		}
	}
	if len(w.watchers) > 0 && n.up && n.life == life {
		w.stepped(n, ev)
	}
	out.Scribble()
	out.Reset()
	if n.up && n.life == life {
		w.oracles.afterStep(n)
		w.tick(n)
	}
}

// tick keeps one tick outstanding for the machine's deadline, or one that is
// earlier: then the machine is ticked without need, which it must bear.
func (w *world) tick(n *node) {
	t, ok := n.machine.Deadline()
	if !ok {
		return
	}
	if n.tickAt != 0 && (n.tickAt <= w.now || n.shows(n.tickAt-1) < t) {
		return // It comes no later than it must.
	}
	at := max(n.when(t), w.now)
	late := effects.Duration(0)
	if d := w.draw(draw.Tick, n); d.Permille(100) {
		late = d.Again().Span(0, effects.Millisecond)
	}
	n.tickGen++
	n.tickAt = at + int64(late)
	w.forNode(n, effects.Duration(n.tickAt-w.now), delivery{kind: kindTick, a: n.tickGen})
}

func (w *world) body(b []byte) []byte {
	if n := len(w.spareBody); n > 0 {
		s := w.spareBody[n-1]
		w.spareBody = w.spareBody[:n-1]
		return append(s[:0], b...)
	}
	return append(make([]byte, 0, max(512, len(b))), b...)
}

// recycle overwrites a body that was borrowed for one step, to expose who kept it.
func (w *world) recycle(b []byte) {
	if b == nil {
		return
	}
	for rest := b; len(rest) > 0; {
		rest = rest[copy(rest, garbage[:]):]
	}
	w.spareBody = append(w.spareBody, b)
}

var garbage = func() (g [1024]byte) {
	for i := range g {
		g[i] = 0xDB
	}
	return g
}()

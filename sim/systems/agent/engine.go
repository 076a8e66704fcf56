package agent

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engineProcess is an engine with a client, as docs/protocol-agent.md has it. One that lies says anything beside.
type engineProcess struct {
	a       *all
	place   int // among all
	node    int32
	lies    bool
	gone    bool
	thaw    int64 // frozen until then
	wakesAt int64

	session  uint64
	life     uint32
	s        *stream
	attached bool
	last     uint64
	calls    map[uint64]*asked // that the agent was not told to be done
	held     map[uint64]bool   // by the numbers of calls; false: it is given back
	inbox    []byte
	tasks    []*task
}

// An asked is a call as its engine has it.
type asked struct {
	body     []byte
	task     *task
	op       protocol.CallOp
	answered bool
	held     bool
	returned bool
	code     effects.Code
	pages    int
}

func (x *asked) ended() bool { return x.answered && (!x.held || x.returned) }

// A task is a job that an engine works on: chunks that it fills and puts, or that it gets and reads.
type task struct {
	job   int
	sends bool
	phase int
	tries int
	call  *asked // that it waits for
	holds uint64 // pages, by the number of the call
	at    int64  // it goes on no sooner
}

func (e *engineProcess) process() session.Process { return session.Process(e.place + 1) }

// engine is the one of a node that works on a job.
func (a *all) engine(n *world.Node, j *pd.Job) *engineProcess {
	at := [2]int32{n.ID, int32(j.Place % 2)}
	if i, ok := a.present[at]; ok && !a.engines[i].gone {
		return a.engines[i]
	}
	e := &engineProcess{a: a, place: len(a.engines), node: n.ID, calls: map[uint64]*asked{}, held: map[uint64]bool{}}
	e.lies = a.draw().Permille(80) && !a.w.Healed
	a.engines = append(a.engines, e)
	a.present[at] = e.place
	if end := int64(a.w.Setting.Faulty) - a.w.Now; e.lies && end >= 0 { // It ends with the faults.
		a.w.After(effects.Duration(end)+effects.Millisecond,
			world.Delivery{Kind: world.KindAttached, Node: -1, A: ends, B: uint64(e.place)})
	}
	return e
}

// wake has it go on in a while.
func (e *engineProcess) wake(in effects.Duration) {
	at := e.a.w.Now + int64(in)
	if e.gone || e.wakesAt != 0 && e.wakesAt <= at {
		return
	}
	e.wakesAt = at
	e.a.w.After(in, world.Delivery{Kind: world.KindAttached, Node: -1, A: goesOn, B: uint64(e.place)})
}

func (e *engineProcess) take(t *task) {
	e.tasks = append(e.tasks, t)
	e.a.w.Unfinished++
	e.wake(e.a.draw().Heavy(effects.Millisecond))
}

// over ends a task.
func (e *engineProcess) over(t *task) {
	e.tasks = slices.DeleteFunc(e.tasks, func(x *task) bool { return x == t })
	e.a.w.Unfinished--
}

func (e *engineProcess) sorted(ended bool) (ids []uint64) {
	for _, id := range slices.Sorted(maps.Keys(e.calls)) {
		if e.calls[id].ended() == ended {
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *engineProcess) say(body []byte) {
	if e.s != nil && !e.s.shutEngine {
		e.s.up = append(e.s.up, framed(body)...)
		e.s.soon(e.a.draw().Heavy(effects.Millisecond / 2))
	}
}

func (e *engineProcess) connect() {
	if e.s != nil {
		e.s.shutEngine = true
		e.s.soon(e.a.draw().Heavy(20 * effects.Millisecond))
	}
	e.s, e.attached, e.inbox = nil, false, nil
	n := e.a.w.Nodes[e.node]
	if e.a.host(n) == nil {
		return
	}
	e.s = &stream{a: e.a, id: session.Conn(len(e.a.streams) + 1), node: e.node, life: n.Life, engine: e.place}
	e.s.since = e.a.w.Now
	if d := e.a.draw(); d.Permille(150) && !e.a.w.Healed { // The agent is slow to serve it.
		e.s.servedAt = e.a.w.Now + int64(d.Again().Heavy(20*effects.Millisecond))
	}
	e.a.streams = append(e.a.streams, e.s)
	m := protocol.AttachRequest{Version: protocol.AttachVersion}
	if e.session != 0 {
		m.Session, m.Life, m.Open = e.session, lifeOf(n, e.life), e.sorted(false)
	}
	e.say(m.Append(nil))
}

// miss ends all that was of a session that is no more.
func (e *engineProcess) miss() {
	clear(e.calls)
	clear(e.held)
	e.session, e.last, e.attached = 0, 0, false
	for _, t := range slices.Clone(e.tasks) {
		if t.phase > 0 {
			e.over(t)
		}
	}
}

// ask calls for something for a task; nil: the window has no room.
func (e *engineProcess) ask(t *task, m protocol.EngineCall, op protocol.CallOp) *asked {
	done := e.sorted(true)
	if !e.attached || len(e.calls)-len(done)+1 > windowMax {
		return nil
	}
	for _, id := range done {
		delete(e.calls, id)
	}
	e.last++
	m.ID, m.Op = e.last, []byte(op.String())
	x := &asked{task: t, op: op, body: m.Append(nil)}
	m.Done = done
	e.calls[m.ID] = x
	if h := e.a.host(e.a.w.Nodes[e.node]); h != nil && h.life == e.life {
		h.jobs[session.Call{Session: e.session, ID: m.ID}] = t.job
	}
	e.say(m.Append(nil))
	return x
}

// goOn lets an engine do what it has to, after what goes wrong with it.
func (e *engineProcess) goOn() {
	w := e.a.w
	if e.gone || w.Failure != nil {
		return
	}
	e.looks()
	if w.Healed && e.a.healedAt == 0 {
		e.a.healedAt = w.Now
	}
	if e.thaw > w.Now && !w.Healed {
		e.wake(min(effects.Duration(e.thaw-w.Now), 100*effects.Millisecond))
		return
	}
	if !w.Healed && e.mishap() {
		return
	}
	if e.s != nil && e.s.dead() {
		e.s.shutAgent = true
	}
	e.read()
	if e.s == nil && (len(e.tasks) > 0 || len(e.calls) > 0) {
		e.connect()
	}
	for _, t := range slices.Clone(e.tasks) {
		if slices.Contains(e.tasks, t) && e.attached && t.at <= w.Now && w.Failure == nil {
			e.work(t)
		}
	}
	if len(e.tasks) > 0 && w.Failure == nil {
		pd.Judged(w, checkCalls)
		if e.a.healedAt != 0 && w.Now-e.a.healedAt > int64(settling) && !w.Jobs[e.tasks[0].job].Probes() {
			w.Fail(checkCalls.Property(), "an engine of node %d waits for ever for call %d", oracle.Node(e.node), e.last)
			return
		}
		e.wake(30 * effects.Millisecond)
	}
}

// mishap draws what goes wrong with an engine; true: it does nothing else now.
func (e *engineProcess) mishap() bool {
	d := e.a.draw()
	switch {
	case d.Permille(20) && e.s != nil:
		e.s.cut()
	case d.Again().Permille(8), e.s != nil && !e.attached && e.a.w.Now-e.s.since > int64(4*effects.Millisecond):
		e.connect() // It gives up a connection that it has.
	case d.Again().Again().Permille(6):
		e.thaw = e.a.w.Now + int64(e.a.draw().Span(effects.Millisecond, 2*effects.Second))
		e.wake(100 * effects.Millisecond)
		return true
	case d.Again().Again().Again().Permille(8):
		e.die()
		return true
	case e.lies && d.Again().Again().Again().Again().Permille(300):
		e.lie()
	}
	return false
}

// die ends the process: the agent hears of it in a while, and of its connection before or after that.
func (e *engineProcess) die() {
	w := e.a.w
	e.gone = true
	if e.s != nil {
		e.s.cut()
	}
	for _, t := range slices.Clone(e.tasks) {
		e.over(t)
	}
	w.After(e.a.draw().Heavy(100*effects.Millisecond),
		world.Delivery{Kind: world.KindAttached, Node: -1, A: exits, B: uint64(e.place)})
}

// lie says what no client says: numbers of others, what is over, what never was, what is no message.
func (e *engineProcess) lie() {
	d := e.a.draw()
	number := func() uint64 { return e.a.draw().Below(8) }
	if e.s == nil || d.Permille(200) {
		was := *e
		e.session, e.life = number(), e.a.w.Nodes[e.node].Life
		e.connect()
		e.session, e.life = was.session, was.life
		return
	}
	switch d.Again().Below(4) {
	case 0:
		e.say([]byte{0xC1, 0, 1})
	case 1:
		e.say((&protocol.EngineShown{ID: number()}).Append(nil))
	default:
		all := protocol.CallOps()
		m := protocol.EngineCall{ID: e.last + number(), Op: []byte(all[e.a.draw().Below(uint64(len(all)))].String())}
		if d.Again().Permille(500) {
			m.Target = number()
		}
		m.Done = append(m.Done, number())
		e.say(m.Append(nil))
	}
}

// looks has an engine write into what it holds, or read it: it may at any time, attached or not.
func (e *engineProcess) looks() {
	h := e.a.host(e.a.w.Nodes[e.node])
	if h == nil || h.life != e.life || e.lies {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.held)) {
		if t := h.holds[session.Call{Session: e.session, ID: id}]; e.held[id] && (t == 0 || !h.holdsStill(t, "uses")) {
			if t == 0 {
				e.a.w.Fail(checkHeld.Property(), "what call %d brought an engine of node %d is not held any more", id, h.n.It())
			}
			return
		}
	}
}

func (e *engineProcess) read() {
	s := e.s
	if s == nil {
		return
	}
	e.inbox, s.down = append(e.inbox, s.down...), nil
	for e.s == s {
		body, ok := next(&e.inbox)
		if !ok {
			break
		}
		e.heard(body)
	}
	if e.s == s && s.shutAgent {
		s.shutEngine = true
		s.soon(0)
		e.s, e.attached = nil, false
		e.wake(e.a.draw().Heavy(10 * effects.Millisecond))
	}
}

func (e *engineProcess) heard(body []byte) {
	w := e.a.w
	var at protocol.AttachResponse
	var a protocol.EngineAnswer
	var r protocol.EngineReturned
	is := func(tag protocol.Tag) bool { return protocol.MayBe(body, tag, &limits) }
	switch {
	case is(protocol.TagAttachResponse) && at.Decode(body, &limits) == nil:
		e.attachedAs(&at)
	case is(protocol.TagEngineAnswer) && a.Decode(body, &limits) == nil:
		x := e.calls[a.ID]
		if x == nil || x.answered {
			return
		}
		x.answered, x.held, x.code, x.pages = true, a.Held, effects.Code(a.Code), len(a.Pages)
		if len(a.Pages) > 0 {
			e.held[a.ID] = true
		}
	case is(protocol.TagEngineReturned) && r.Decode(body, &limits) == nil:
		x := e.calls[r.ID]
		if x == nil {
			return
		}
		h := e.a.host(w.Nodes[e.node])
		if h != nil && h.life == e.life && h.works[session.Call{Session: e.session, ID: r.ID}] != 0 {
			w.Fail(checkCalls.Property(), "an engine of node %d is told that the memory of call %d is back, and it is not",
				oracle.Node(e.node), r.ID)
		}
		x.returned = true
	}
}

func (e *engineProcess) attachedAs(m *protocol.AttachResponse) {
	if m.Code != 0 {
		if effects.Code(m.Code) == effects.Refused && !e.lies {
			e.a.w.Fail(checkCalls.Property(), "an engine of node %d is turned away: %s", oracle.Node(e.node), m.Reason)
		}
		if e.session != 0 {
			e.miss()
		}
		if effects.Code(m.Code) == effects.Draining {
			for _, t := range slices.Clone(e.tasks) {
				e.over(t) // This agent takes nobody any more.
			}
		}
		return
	}
	if m.Resumed && m.Session == e.session {
		e.attached = true
		for _, id := range e.sorted(true) {
			delete(e.calls, id)
		}
		for _, id := range e.sorted(false) {
			if x := e.calls[id]; !x.answered {
				e.say(x.body)
			}
		}
		return
	}
	if e.session != 0 {
		e.miss()
	}
	e.session, e.life, e.attached = m.Session, e.s.life, true
}

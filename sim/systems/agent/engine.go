package agent

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engineProcess is an engine with a client as in docs/protocol-agent.md. A lying engine sends false messages as
// well.
type engineProcess struct {
	a       *all `snap:"skip"`
	place   int  // index in all.engines
	node    int32
	lies    bool
	gone    bool
	thaw    int64 `snap:"instant"` // the process is frozen until this time
	wakesAt int64 `snap:"skip"`    // the time of the next scheduled wake-up; 0 if none is scheduled

	session  uint64
	life     uint32
	s        *stream
	attached bool
	leaving  bool // the engine has called detach and has no answer yet
	last     uint64
	calls    map[uint64]*asked // calls that the agent has not been told are done
	held     map[uint64]bool   // holdings by call number; false while being given back
	inbox    []byte
	tasks    []*task
}

// asked is a call from the point of view of the engine.
type asked struct {
	id       uint64
	body     []byte
	op       protocol.CallOp
	answered bool
	held     bool
	returned bool
	aborted  bool
	code     effects.Code
	pages    int
	hits     uint32
	read     uint32 // chunks that were shown to the engine and read
	shown    *protocol.EngineShow
	readsAt  int64 `snap:"instant"` // the time at which the engine has read the shown chunks
}

// ended reports whether the call has an answer and holds no memory.
func (x *asked) ended() bool { return x.answered && (!x.held || x.returned) }

// process returns the identity of the process for the session machine.
func (e *engineProcess) process() session.Process { return session.Process(e.place + 1) }

// engine returns the engine process of a node that works on a job. A process is started if there is none.
func (a *all) engine(n *world.Node, j *pd.Job) *engineProcess {
	at := [2]int32{n.ID, int32(j.Place % 2)}
	if i, ok := a.present[at]; ok && !a.engines[i].gone {
		return a.engines[i]
	}
	e := &engineProcess{a: a, place: len(a.engines), node: n.ID, calls: map[uint64]*asked{}, held: map[uint64]bool{}}
	e.lies = a.draw().Rarely(80) && !a.w.Healed
	a.engines = append(a.engines, e)
	a.present[at] = e.place
	if end := int64(a.w.Setting.Faulty) - a.w.Now; e.lies && end >= 0 { // A lying engine ends with the faults.
		a.w.After(effects.Duration(end)+effects.Millisecond,
			world.Delivery{Kind: world.KindAttached, Node: -1, A: ends, B: uint64(e.place)})
	}
	return e
}

// wake schedules the next turn of the engine after the given time, unless an earlier turn is scheduled.
func (e *engineProcess) wake(in effects.Duration) {
	at := max(e.a.w.Now+int64(in), 1)
	if e.gone || e.wakesAt != 0 && (e.wakesAt <= at || e.a.small()) {
		return
	}
	e.wakesAt = at
	e.a.w.After(in, world.Delivery{Kind: world.KindAttached, Node: -1, A: goesOn, B: uint64(e.place)})
}

// take adds a task to the engine.
func (e *engineProcess) take(t *task) {
	e.tasks = append(e.tasks, t)
	e.a.w.Unfinished++
	e.wake(e.a.while(effects.Millisecond))
}

// over removes a task from the engine.
func (e *engineProcess) over(t *task) {
	e.tasks = slices.DeleteFunc(e.tasks, func(x *task) bool { return x == t })
	e.a.w.Unfinished--
}

// sorted returns the values of a map in the order of their calls.
func sorted(all map[session.CallRef]*work) []*work {
	return slices.SortedFunc(maps.Values(all), func(a, b *work) int {
		return cmp.Or(cmp.Compare(a.call.Session, b.call.Session), cmp.Compare(a.call.ID, b.call.ID))
	})
}

// sorted returns the numbers of the calls that have ended, or that have not, in order.
func (e *engineProcess) sorted(ended bool) (ids []uint64) {
	for _, id := range slices.Sorted(maps.Keys(e.calls)) {
		if e.calls[id].ended() == ended {
			ids = append(ids, id)
		}
	}
	return ids
}

// say sends a message to the agent.
func (e *engineProcess) say(body []byte) {
	if e.s != nil && !e.s.shutEngine {
		e.s.up = protocol.AppendFrame(e.s.up, body)
		e.s.soon(e.a.while(effects.Millisecond / 2))
	}
}

// connect opens a new connection and sends the attach request. An earlier connection is closed.
func (e *engineProcess) connect() {
	if e.s != nil {
		e.s.shutEngine = true
		e.s.soon(e.a.while(20 * effects.Millisecond))
	}
	e.s, e.attached, e.inbox = nil, false, nil
	n := e.a.w.Nodes[e.node]
	if e.a.host(n) == nil {
		return
	}
	e.s = &stream{a: e.a, id: session.Conn(len(e.a.streams) + 1), node: e.node, life: n.Life, engine: e.place}
	e.s.since = e.a.w.Now
	if d := e.a.draw(); d.Rarely(150) && !e.a.w.Healed { // The agent is slow to serve the connection.
		e.s.servedAt = e.a.w.Now + int64(d.Again().Heavy(20*effects.Millisecond))
	}
	e.a.streams = append(e.a.streams, e.s)
	m := protocol.AttachRequest{Version: protocol.AttachVersion}
	if e.session != 0 {
		e.forget()
		m.Session, m.Incarnation, m.Open = e.session, lifeOf(n, e.life), e.sorted(false)
	}
	e.say(m.Append(nil))
}

// miss drops the state of a session that no longer exists.
func (e *engineProcess) miss() {
	clear(e.calls)
	clear(e.held)
	e.session, e.last, e.attached, e.leaving = 0, 0, false, false
	for _, t := range slices.Clone(e.tasks) {
		if t.phase > begins {
			e.over(t)
		}
	}
}

// ask makes a call. The result is nil if the window has no room or the engine is not attached.
func (e *engineProcess) ask(m protocol.EngineCall, op protocol.CallOp, job, at int) *asked {
	done := e.sorted(true)
	if !e.attached || len(e.calls)-len(done)+1 > e.a.window {
		return nil
	}
	for _, id := range done {
		delete(e.calls, id)
	}
	e.last++
	m.ID, m.Op, m.Done = e.last, []byte(op.String()), done
	x := &asked{id: e.last, op: op, body: m.Append(nil)}
	e.calls[m.ID] = x
	if h := e.agent(); h != nil {
		h.says(session.CallRef{Session: e.session, ID: m.ID}, &said{job: job, at: at, lie: e.lies})
	}
	e.say(x.body)
	return x
}

// agent returns the agent to which the engine is or was attached, or nil if that incarnation of the agent has ended.
func (e *engineProcess) agent() *host {
	if h := e.a.host(e.a.w.Nodes[e.node]); h != nil && h.life == e.life {
		return h
	}
	return nil
}

// goOn runs a turn of an engine: first faults, then work.
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
	if !w.Healed && !e.a.small() && e.mishap() {
		return
	}
	if e.s != nil && e.s.dead() {
		e.s.shutAgent = true
	}
	e.read()
	if e.s == nil && (len(e.tasks) > 0 || len(e.calls) > 0 || e.leaving) {
		e.connect()
	}
	e.readShown()
	for _, t := range slices.Clone(e.tasks) {
		if slices.Contains(e.tasks, t) && e.attached && !e.leaving && t.until <= w.Now && w.Failure == nil {
			e.work(t)
		}
	}
	e.mayDetach()
	if (len(e.tasks) > 0 || e.leaving) && w.Failure == nil {
		pd.Judged(w, checkCalls)
		if e.a.healedAt != 0 && w.Now-e.a.healedAt > int64(settling) &&
			(e.leaving || !w.Jobs[e.tasks[0].job].Probes()) {
			w.Fail(checkCalls.Property(), "an engine of node %d waits for ever for call %d", oracle.Node(e.node), e.last)
			return
		}
		if !e.a.small() {
			e.wake(30 * effects.Millisecond)
		}
	}
}

// looks checks that the engine may still use everything that it holds. An engine may read and write its pages at any
// time, attached or not.
func (e *engineProcess) looks() {
	h := e.agent()
	if h == nil || e.lies || e.leaving {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.held)) {
		if x := h.holds[session.CallRef{Session: e.session, ID: id}]; e.held[id] && (x == nil || !h.holdsStill(x, "uses")) {
			if x == nil {
				e.a.w.Fail(checkHeld.Property(), "what call %d brought an engine of node %d is not held any more", id, h.n.It())
			}
			return
		}
	}
}

// read receives the messages of the agent. A closed stream is dropped.
func (e *engineProcess) read() {
	s := e.s
	if s == nil {
		return
	}
	e.inbox, s.down = append(e.inbox, s.down...), nil
	for e.s == s && e.a.w.Failure == nil {
		body, rest, ok := protocol.CutFrame(e.inbox)
		if !ok {
			break
		}
		e.inbox = rest
		e.heard(body)
	}
	if e.s == s && s.shutAgent {
		s.shutEngine = true
		s.soon(0)
		e.s, e.attached = nil, false
		e.wake(e.a.while(10 * effects.Millisecond))
	}
}

// heard handles a message from the agent.
func (e *engineProcess) heard(body []byte) {
	w := e.a.w
	var at protocol.AttachResponse
	var a protocol.EngineAnswer
	var r protocol.EngineReturned
	var show protocol.EngineShow
	is := func(tag protocol.Tag) bool { return protocol.MayHaveTag(body, tag, &limits) }
	switch {
	case is(protocol.TagAttachResponse) && at.Decode(body, &limits) == nil:
		e.attachedAs(&at)
	case is(protocol.TagEngineAnswer) && a.Decode(body, &limits) == nil:
		if x := e.calls[a.ID]; x != nil && !x.answered {
			e.answered(x, &a)
		}
	case is(protocol.TagEngineShow) && show.Decode(body, &limits) == nil:
		if x := e.calls[show.ID]; x != nil && !x.answered {
			x.shown, x.readsAt = &show, w.Now+int64(e.a.while(5*effects.Millisecond))
			e.wake(effects.Duration(x.readsAt - w.Now))
		}
	case is(protocol.TagEngineReturned) && r.Decode(body, &limits) == nil:
		x := e.calls[r.ID]
		if x == nil {
			return
		}
		if !e.lies && (!x.answered || !x.held) {
			w.Fail(checkCalls.Property(), "an engine of node %d is told that the memory of call %d is back, which is not held",
				oracle.Node(e.node), r.ID)
		}
		if h := e.agent(); h != nil && h.works[session.CallRef{Session: e.session, ID: r.ID}] != nil {
			w.Fail(checkCalls.Property(), "an engine of node %d is told that the memory of call %d is back, and it is not",
				oracle.Node(e.node), r.ID)
		}
		x.returned = true
	}
}

// answered handles the answer to a call.
func (e *engineProcess) answered(x *asked, a *protocol.EngineAnswer) {
	w := e.a.w
	x.answered, x.held, x.code, x.pages, x.hits = true, a.Held, effects.Code(a.Code), len(a.Pages), a.Hits
	brings := rules[x.op].brings
	if brings != session.NoHolding && (x.pages > 0 || x.code == effects.OK && brings != session.Pages) {
		e.held[a.ID] = true
	}
	x.shown = nil // The read lease has ended.
	fetched := x.op == protocol.CallFetch || x.op == protocol.CallSharedFetch
	if fetched && x.code == effects.OK && !e.lies && x.read != x.hits {
		w.Fail(checkShown.Property(), "a fetch of an engine of node %d ends well with %d chunks, and it was shown %d",
			oracle.Node(e.node), x.hits, x.read)
	}
	if x.op != protocol.CallDetach {
		return
	}
	if h := e.agent(); h != nil && !e.lies {
		for _, held := range h.holds {
			if held.at.Session == e.session {
				w.Fail(checkLeft.Property(), "an engine of node %d has detached by its agent's word, and call %d's is held still",
					h.n.It(), held.at.ID)
			}
		}
	}
	e.miss()
	e.s.shutEngine = true
	e.s.soon(0)
	e.s = nil
	e.wake(e.a.while(10 * effects.Millisecond))
}

// readShown makes the engine read and confirm the chunks that the agent shows. At times the engine reports a failure.
func (e *engineProcess) readShown() {
	for _, id := range e.sorted(false) {
		x := e.calls[id]
		if x.shown == nil || !e.attached {
			continue
		}
		if x.readsAt > e.a.w.Now {
			e.wake(effects.Duration(x.readsAt - e.a.w.Now))
			continue
		}
		m := protocol.EngineShown{ID: id, First: x.shown.First}
		if e.a.draw().Rarely(30) && !e.a.w.Healed {
			m.Code = uint32(effects.Faulted)
		} else {
			x.read = max(x.read, x.shown.First+uint32(len(x.shown.Pages)))
			if h := e.agent(); h != nil {
				h.said[session.CallRef{Session: e.session, ID: id}].read = x.read
			}
		}
		x.shown = nil
		e.say(m.Append(nil))
	}
}

// attachedAs handles the response to the attach request: a refusal, a resumed session or a new session.
func (e *engineProcess) attachedAs(m *protocol.AttachResponse) {
	if m.Code != 0 {
		if effects.Code(m.Code) == effects.Refused && !e.lies && !e.leaving {
			e.a.w.Fail(checkCalls.Property(), "an engine of node %d is turned away: %s", oracle.Node(e.node), m.Reason)
		}
		if e.session != 0 {
			e.miss()
		}
		if effects.Code(m.Code) == effects.Draining {
			for _, t := range slices.Clone(e.tasks) {
				e.over(t) // The agent drains and accepts no new session.
			}
		}
		return
	}
	if m.Resumed && m.Session == e.session {
		if e.s.life != e.life && !e.lies {
			e.a.w.Fail(checkHeld.Property(), "an engine of node %d goes on with a session of another life", oracle.Node(e.node))
			return
		}
		e.attached = true
		for _, id := range e.sorted(true) {
			delete(e.calls, id)
		}
		for _, id := range e.sorted(false) {
			x := e.calls[id]
			if x.shown = nil; !x.answered { // The agent shows pending chunks again.
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

package session

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A stream is a connection: bytes in either direction. Who closes his end takes nothing more, and what he has written
// arrives; of one that is cut both ends find out when they have read what is left.
type stream struct {
	id         Conn
	process    Process
	life       int    // of the agent
	up, down   []byte // to the agent, to the engine
	first      bool   // the agent has had the first message
	attached   bool   // and has taken it
	shutAgent  bool   // by the agent, or cut: nothing goes down any more
	shutEngine bool   // by the engine, or cut: nothing goes up any more
	over       bool   // the agent has read all of it
}

// An asked is a call as its engine has it.
type asked struct {
	id       uint64
	op       protocol.CallOp
	target   uint64
	prefill  uint64
	body     []byte // without done, which is said once
	answered bool
	held     bool
	returned bool
}

func (a *asked) ended() bool { return a.answered && (!a.held || a.returned) }

// A had is what an engine holds, as it knows.
type had struct {
	life   int // of the agent
	kind   HoldingKind
	pages  []uint64
	giving bool // it has said that it gives it back
}

// An engine is one process with one client, as docs/protocol-agent.md has it. One that lies says anything beside.
type engine struct {
	w       *world
	process Process
	lies    bool
	gone    bool
	frozen  bool // it reads nothing, and says nothing
	adopts  bool // it has the pool as its own memory

	session  uint64
	life     int
	window   int
	s        *stream // nil: not connected
	attached bool
	leaving  bool
	last     uint64
	calls    map[uint64]*asked // that the agent was not told to be done
	had      map[uint64]*had
	inbox    []byte
}

func (e *engine) handle(id uint64) handle { return handle{e.life, CallRef{e.session, id}} }

func (e *engine) ids() []uint64 { return slices.Sorted(maps.Keys(e.calls)) }

// open are the calls of which it has not had everything.
func (e *engine) open() (all []uint64) {
	for _, id := range e.ids() {
		if !e.calls[id].ended() {
			all = append(all, id)
		}
	}
	return all
}

// done are those of which it has.
func (e *engine) done() (all []uint64) {
	for _, id := range e.ids() {
		if e.calls[id].ended() {
			all = append(all, id)
		}
	}
	return all
}

// holds says whether it holds something that it has not given back.
func (e *engine) holds() bool {
	for _, h := range e.had {
		if !h.giving {
			return true
		}
	}
	return false
}

func (e *engine) say(body []byte) {
	if e.s != nil && !e.s.shutEngine {
		e.s.up = protocol.AppendFrame(e.s.up, body)
	}
}

// connect attaches anew: with the session that it has, if it has one.
func (e *engine) connect() {
	if e.s != nil {
		e.s.shutEngine = true // It gave this one up. What was said on it may still be read.
	}
	e.s, e.inbox, e.attached = e.w.connect(e.process), nil, false
	m := protocol.AttachRequest{Version: protocol.AttachVersion, Adopts: e.adopts}
	if e.session != 0 {
		m.Session, m.Incarnation, m.Open = e.session, lifeOf(e.life), e.open()
	}
	e.w.note("engine %d connects by %d: session %d, open %d", e.process, e.s.id, m.Session, m.Open)
	e.say(m.Append(nil))
}

// miss ends all that was of a session that is no more.
func (e *engine) miss() {
	e.w.missed += len(e.open())
	clear(e.calls)
	clear(e.had)
	e.session, e.last, e.attached, e.leaving = 0, 0, false, false
}

// ask calls for something, if the window has room. Of a lie nothing is expected.
func (e *engine) ask(op protocol.CallOp, target, prefill uint64) bool {
	done := e.done()
	if !e.attached || e.leaving || len(e.calls)-len(done)+1 > e.window {
		return false
	}
	for _, id := range done {
		delete(e.calls, id)
	}
	e.last++
	a := &asked{id: e.last, op: op, target: target, prefill: prefill}
	m := protocol.EngineCall{ID: a.id, Op: []byte(op.String()), Target: target, Prefill: prefill}
	a.body = m.Append(nil)
	m.Done = done
	e.calls[a.id] = a
	if p := holdingRules; int(op) < len(p) && p[op].endsHolding {
		e.had[max(target, prefill)].giving = true
	}
	e.leaving = op == protocol.CallDetach
	if op == protocol.CallAbort {
		e.w.unwanted[e.handle(target)] = true
	}
	if e.leaving && e.life == e.w.life {
		e.w.left[e.session] = true
	}
	e.w.note("engine %d asks %d.%d %v of %d, %d", e.process, e.session, a.id, op, target, prefill)
	e.say(m.Append(nil))
	return true
}

// read takes what has come.
func (e *engine) read() {
	s := e.s
	e.inbox, s.down = append(e.inbox, s.down...), nil
	for e.s == s {
		body, rest, ok := protocol.CutFrame(e.inbox)
		if !ok {
			break
		}
		e.inbox = rest
		e.heard(body)
	}
	if e.s == s && s.shutAgent && len(s.down) == 0 {
		s.shutEngine = true
		e.s, e.attached = nil, false
		if e.leaving && len(e.open()) == 0 {
			e.miss() // It has detached.
		}
	}
}

func (e *engine) heard(body []byte) {
	w, lim := e.w, &e.w.lim
	switch {
	case protocol.MayHaveTag(body, protocol.TagAttachResponse, lim):
		var m protocol.AttachResponse
		w.must(m.Decode(body, lim))
		e.attachedAs(&m)
	case protocol.MayHaveTag(body, protocol.TagEngineAnswer, lim):
		var m protocol.EngineAnswer
		w.must(m.Decode(body, lim))
		e.answered(&m)
	case protocol.MayHaveTag(body, protocol.TagEngineReturned, lim):
		var m protocol.EngineReturned
		w.must(m.Decode(body, lim))
		if a := e.calls[m.ID]; a != nil {
			if !a.answered || !a.held {
				w.t.Fatalf("engine %d is told that the memory of call %d is back, which has it", e.process, m.ID)
			}
			if !w.back[e.handle(m.ID)] {
				w.t.Fatalf("engine %d is told that the memory of call %d is back, and it is not", e.process, m.ID)
			}
			a.returned = true
		}
	default:
		var m protocol.EngineShow
		w.must(m.Decode(body, lim))
		x := protocol.EngineShown{ID: m.ID, First: m.First}
		for _, p := range m.Pages {
			if w.pages[p].lent != e.handle(m.ID) && e.life == w.life && !w.unwanted[e.handle(m.ID)] && !e.leaving {
				w.t.Fatalf("engine %d reads page %d for call %d, which does not lend it", e.process, p, m.ID)
			}
		}
		e.say(x.Append(nil))
	}
}

func (e *engine) attachedAs(m *protocol.AttachResponse) {
	w := e.w
	switch {
	case m.Code != 0:
		may := map[effects.Code]bool{
			effects.TooMany: true, effects.Draining: w.draining, effects.Refused: e.leaving || e.lies,
		}
		if code := effects.Code(m.Code); e.s.life == w.life && !may[code] {
			w.t.Fatalf("engine %d is turned away: %v, %s", e.process, code, m.Reason)
		}
		if e.session != 0 {
			if e.holds() && e.life == w.life && !e.leaving && !e.lies && e.s.life == w.life {
				w.t.Fatalf("engine %d holds something and is turned away: %s", e.process, m.Reason)
			}
			e.miss()
		}
		return
	case m.Resumed:
		if m.Session != e.session {
			w.t.Fatalf("engine %d goes on with session %d instead of %d", e.process, m.Session, e.session)
		}
		e.attached = true
		for _, id := range e.open() {
			if a := e.calls[id]; !a.answered {
				e.say(a.body)
			}
		}
		for _, id := range e.done() {
			delete(e.calls, id) // They were not named, and are forgotten.
		}
		return
	case e.session != 0:
		if e.life == w.life && !e.leaving && !w.draining && !e.lies && e.holds() {
			w.t.Fatalf("engine %d loses session %d of a living agent", e.process, e.session)
		}
		e.miss()
	}
	e.session, e.life, e.window, e.attached = m.Session, w.lifeOf(m.Incarnation), int(m.Window), true
	if own := w.owners[e.session]; own != nil && e.life == w.life {
		w.t.Fatalf("engine %d is given session %d of engine %d", e.process, e.session, own.process)
	}
	if e.life == w.life { // Else it reads what the one before has said.
		w.owners[e.session] = e
	}
}

func (e *engine) answered(m *protocol.EngineAnswer) {
	w := e.w
	a := e.calls[m.ID]
	if a == nil {
		if !e.lies && m.ID > e.last {
			w.t.Fatalf("engine %d has an answer of call %d, which it has not made", e.process, m.ID)
		}
		return
	}
	if a.answered {
		return
	}
	a.answered, a.held = true, m.Held
	if m.Code == 0 && m.ID != 0 && a.op < protocol.CallOp(len(holdingRules)) && !e.lies {
		p := holdingRules[a.op]
		if p.creates != NoHolding && m.Hits == 1 {
			e.had[a.id] = &had{life: e.life, kind: p.creates, pages: slices.Clone(m.Pages)}
		}
	}
	if a.op < protocol.CallOp(len(holdingRules)) && holdingRules[a.op].endsHolding {
		if h := e.had[max(a.target, a.prefill)]; h != nil {
			if h.giving = false; m.Code == 0 {
				delete(e.had, max(a.target, a.prefill))
			}
		}
	}
}

// write has the engine fill what it holds: it may at any time, attached or not.
func (e *engine) write() {
	for _, id := range slices.Sorted(maps.Keys(e.had)) {
		h := e.had[id]
		if h.life != e.w.life || h.giving || e.gone || e.lies || e.leaving {
			continue // Of another life it is another file.
		}
		for _, p := range h.pages {
			if x := e.w.pages[p]; x.owner != e.handle(id) {
				e.w.t.Fatalf("engine %d writes into page %d of call %d, which belongs to %v by now", e.process, p, id, x.owner)
			}
		}
	}
}

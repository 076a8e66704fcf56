package agent

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// mishap draws and applies a fault of an engine. The result is true if the engine does nothing else in this turn.
func (e *engineProcess) mishap() bool {
	d := e.a.draw()
	next := func(of int) bool {
		d = d.Again()
		return d.Permille(of)
	}
	switch {
	case e.s != nil && (next(20) || !e.attached && next(60) || e.owed() && next(60)):
		e.s.cut()
	case next(8), e.s != nil && !e.attached && e.a.w.Now-e.s.since > int64(4*effects.Millisecond):
		e.connect() // The engine abandons the present connection, if any.
	case next(6):
		e.thaw = e.a.w.Now + int64(e.a.draw().Span(effects.Millisecond, 2*effects.Second))
		e.wake(100 * effects.Millisecond)
		return true
	case next(8):
		e.die()
		return true
	case next(4):
		e.detach()
	case e.lies && next(300):
		e.lie()
	}
	return false
}

// owed reports whether an engine waits for memory to be returned, or has not yet confirmed that the chunks of a
// showing were read.
func (e *engineProcess) owed() bool {
	for _, x := range e.calls {
		if x.shown != nil || x.answered && x.held && !x.returned {
			return true
		}
	}
	return false
}

// die ends the process. The agent is notified after a random time, and of the cut connection before or after that.
func (e *engineProcess) die() {
	w := e.a.w
	e.gone = true
	if e.s != nil {
		e.s.cut()
	}
	for _, t := range slices.Clone(e.tasks) {
		e.over(t)
	}
	w.After(e.a.while(100*effects.Millisecond),
		world.Delivery{Kind: world.KindAttached, Node: -1, A: exits, B: uint64(e.place)})
}

// detach makes an engine detach, perhaps with holdings. The engine does not wait for the answer before it
// continues with new tasks.
func (e *engineProcess) detach() {
	if e.leaving || e.ask(protocol.EngineCall{}, protocol.CallDetach, -1, 0) == nil {
		return
	}
	e.leaving = true
	for _, t := range slices.Clone(e.tasks) {
		if t.phase > begins {
			e.over(t)
		}
	}
	if e.a.draw().Rarely(300) { // Another thread of the engine still makes a call.
		e.ask(protocol.EngineCall{}, protocol.CallContains, -1, 0)
	}
}

// mayDetach makes an idle engine detach at times.
func (e *engineProcess) mayDetach() {
	if len(e.tasks) == 0 && e.attached && !e.lies && e.a.draw().Rarely(200) {
		e.detach()
	}
}

// forget makes a reconnecting engine drop some of its unanswered calls at times. A dropped call may already have given
// the engine pages, so the engine releases the pages blindly.
func (e *engineProcess) forget() {
	for _, t := range e.tasks {
		x := t.call
		if x == nil || x.answered || t.phase != comes || e.a.w.Healed || !e.a.draw().Rarely(150) {
			continue
		}
		delete(e.calls, x.id)
		t.call, t.blind = nil, true
		t.phase = leaves
	}
}

// lie sends a message that no correct client sends: numbers of other sessions, numbers of calls that are over or never
// existed, malformed messages, or more calls than the window allows.
func (e *engineProcess) lie() {
	d := e.a.draw()
	number := func() uint64 {
		if held := slices.Sorted(maps.Keys(e.held)); len(held) > 0 && e.a.draw().Permille(400) {
			return held[e.a.draw().Below(uint64(len(held)))]
		}
		return e.a.draw().Below(8)
	}
	if e.s == nil || d.Permille(200) {
		was := *e
		e.session, e.life = number(), e.a.w.Nodes[e.node].Life
		e.connect()
		e.session, e.life = was.session, was.life
		return
	}
	job := -1
	if len(e.tasks) > 0 {
		job = e.tasks[0].job
	}
	switch d.Again().Below(8) {
	case 0:
		e.say([]byte{0xC1, 0, 1})
	case 1:
		e.say((&protocol.EngineShown{ID: number(), First: uint32(number())}).Append(nil))
	case 2, 3: // Use a holding as a holding of another kind.
		some := []protocol.CallOp{protocol.CallRelease, protocol.CallWithdraw, protocol.CallPut, protocol.CallShare}
		e.claims(protocol.EngineCall{Target: number()}, some[e.a.draw().Below(uint64(len(some)))], job)
	case 4: // Each of these calls may produce a holding, and some list keys.
		op, m := protocol.CallReserve, protocol.EngineCall{Count: 1}
		if e.a.w.Nodes[e.node].Receives() && d.Again().Again().Permille(500) {
			op, m = protocol.CallGet, protocol.EngineCall{Keys: slices.Repeat([][]byte{{'k'}}, 3),
				PatienceNS: e.a.patience(d.Again().Again().Again(), effects.Second)}
		}
		for range e.a.window + 2 {
			e.claims(m, op, job)
		}
	default:
		all := protocol.CallOps()
		m := protocol.EngineCall{}
		if d.Again().Permille(500) {
			m.Target = number()
		}
		if d.Again().Again().Permille(200) {
			m.Prefill = number()
		}
		if d.Again().Again().Again().Permille(300) {
			m.Done = append(m.Done, number())
		}
		e.claims(m, all[e.a.draw().Below(uint64(len(all)))], job)
	}
}

// claims makes a call even if the window has no room.
func (e *engineProcess) claims(m protocol.EngineCall, op protocol.CallOp, job int) {
	if !e.attached {
		return
	}
	if h := e.agent(); h != nil && (op == protocol.CallReserve || op == protocol.CallGet) && job >= 0 {
		h.says(session.CallRef{Session: e.session, ID: e.last + 1}, &said{job: job, lie: true}) // The agent carries it out.
	}
	e.last++
	m.ID, m.Op = e.last, []byte(op.String())
	e.say(m.Append(nil))
}

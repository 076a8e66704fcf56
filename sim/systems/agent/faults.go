package agent

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// drawFault draws and applies a fault of an engine. The result is true if the engine does nothing else in this turn.
func (e *engineProcess) drawFault() bool {
	d := e.state.nextDraw()
	strikes := func(of int) bool {
		d = d.Rehash()
		return d.ChancePermille(of)
	}
	switch {
	case e.stream != nil && (strikes(20) || !e.attached && strikes(60) || e.hasOpenExchange() && strikes(60)):
		e.stream.cut()
	case strikes(8), e.stream != nil && !e.attached && e.state.w.Now-e.stream.openedAt > int64(4*effects.Millisecond):
		e.connect() // The engine abandons the present connection, if any.
	case strikes(6):
		e.frozenUntil = e.state.w.Now + int64(e.state.nextDraw().Duration(effects.Millisecond, 2*effects.Second))
		e.scheduleTurn(100 * effects.Millisecond)
		return true
	case strikes(8):
		e.endProcess()
		return true
	case strikes(4):
		e.detachSession()
	case e.isLiar && strikes(300):
		e.sendFalseMessage()
	case !e.isLiar && strikes(25):
		e.attachSpare()
	}
	return false
}

// hasOpenExchange reports whether an engine waits for memory to be returned, or has not yet confirmed that the chunks
// of a showing were read.
func (e *engineProcess) hasOpenExchange() bool {
	for _, x := range e.calls {
		if x.unreadShow != nil || x.answered && x.memoryInUse && !x.memoryReturned {
			return true
		}
	}
	return false
}

// endProcess ends the process. The agent is notified after a random time, and of the cut connection before or after
// that.
func (e *engineProcess) endProcess() {
	w := e.state.w
	e.exited = true
	if e.stream != nil {
		e.stream.cut()
	}
	for _, s := range e.spares {
		s.cut()
	}
	e.spares = nil
	for _, t := range slices.Clone(e.tasks) {
		e.removeTask(t)
	}
	w.QueueAfter(e.state.drawDelay(100*effects.Millisecond),
		world.Delivery{Kind: world.KindAttached, Node: -1, A: deliveryExited, B: uint64(e.index)})
}

// detachSession makes an engine detach, perhaps with holdings. The engine does not wait for the answer before it
// continues with new tasks.
func (e *engineProcess) detachSession() {
	if e.detaching || e.sendCall(protocol.EngineCall{}, protocol.CallDetach, -1, 0) == nil {
		return
	}
	e.detaching = true
	for _, t := range slices.Clone(e.tasks) {
		if t.phase > phaseBegin {
			e.removeTask(t)
		}
	}
	if e.state.nextDraw().ChanceIfRandom(300) { // Another thread of the engine still makes a call.
		e.sendCall(protocol.EngineCall{}, protocol.CallContains, -1, 0)
	}
}

// maybeDetach makes an idle engine detach at times.
func (e *engineProcess) maybeDetach() {
	if len(e.tasks) == 0 && e.attached && !e.isLiar && e.state.nextDraw().ChanceIfRandom(200) {
		e.detachSession()
	}
}

// forgetCalls makes a reconnecting engine drop some of its unanswered calls at times. A dropped call may already have
// given the engine pages, so the engine releases the pages blindly.
func (e *engineProcess) forgetCalls() {
	for _, t := range e.tasks {
		x := t.call
		if x == nil || x.answered || t.phase != phaseAwaitPages || e.state.w.Healed || !e.state.nextDraw().ChanceIfRandom(150) {
			continue
		}
		delete(e.calls, x.id)
		t.call, t.releasesBlind = nil, true
		t.phase = phaseRelease
	}
}

// sendFalseMessage sends a message that no correct client sends: numbers of other sessions, numbers of calls that are
// over or never existed, malformed messages, or more calls than the window allows.
func (e *engineProcess) sendFalseMessage() {
	d := e.state.nextDraw()
	anyNumber := func() uint64 {
		if held := slices.Sorted(maps.Keys(e.holdings)); len(held) > 0 && e.state.nextDraw().ChancePermille(400) {
			return held[e.state.nextDraw().Below(uint64(len(held)))]
		}
		return e.state.nextDraw().Below(8)
	}
	if e.stream == nil || d.ChancePermille(200) {
		saved := *e
		e.sessionID, e.incarnation = anyNumber(), e.state.w.Nodes[e.node].Incarnation
		e.connect()
		e.sessionID, e.incarnation = saved.sessionID, saved.incarnation
		return
	}
	job := -1
	if len(e.tasks) > 0 {
		job = e.tasks[0].job
	}
	switch d.Rehash().Below(8) {
	case 0:
		e.sendFrame([]byte{0xC1, 0, 1})
	case 1:
		e.sendFrame((&protocol.EngineShown{ID: anyNumber(), First: uint32(anyNumber())}).Append(nil))
	case 2, 3: // Use a holding as a holding of another kind.
		ops := []protocol.CallOp{protocol.CallRelease, protocol.CallWithdraw, protocol.CallPut, protocol.CallShare}
		e.sendFalseCall(protocol.EngineCall{Target: anyNumber()}, ops[e.state.nextDraw().Below(uint64(len(ops)))], job)
	case 4: // Each of these calls may produce a holding, and some list keys. The earlier ones may be said to be done at once.
		op, m := protocol.CallReserve, protocol.EngineCall{Count: 1}
		if e.state.w.Nodes[e.node].IsReceiver() && d.Rehash().Rehash().ChancePermille(500) {
			op, m = protocol.CallGet, protocol.EngineCall{Keys: slices.Repeat([][]byte{{'k'}}, 3),
				PatienceNS: e.state.drawPatience(d.Rehash().Rehash().Rehash(), effects.Second)}
		}
		givesUp := d.Rehash().Rehash().Rehash().Rehash().ChancePermille(500)
		for range e.state.callWindow + 2 {
			e.sendFalseCall(m, op, job)
			if givesUp {
				m.Done = []uint64{e.lastCall}
			}
		}
	default:
		ops := protocol.CallOps()
		m := protocol.EngineCall{}
		if d.Rehash().ChancePermille(500) {
			m.Target = anyNumber()
		}
		if d.Rehash().Rehash().ChancePermille(200) {
			m.Prefill = anyNumber()
		}
		if d.Rehash().Rehash().Rehash().ChancePermille(300) {
			m.Done = append(m.Done, anyNumber())
		}
		e.sendFalseCall(m, ops[e.state.nextDraw().Below(uint64(len(ops)))], job)
	}
}

// sendFalseCall makes a call even if the window has no room.
func (e *engineProcess) sendFalseCall(m protocol.EngineCall, op protocol.CallOp, job int) {
	if !e.attached {
		return
	}
	if h := e.findHost(); h != nil && (op == protocol.CallReserve || op == protocol.CallGet) && job >= 0 {
		h.recordCall(session.CallRef{Session: e.sessionID, ID: e.lastCall + 1}, &sentCall{job: job, isFalse: true}) // The agent carries it out.
	}
	e.lastCall++
	m.ID, m.Op = e.lastCall, []byte(op.String())
	e.sendFrame(m.Append(nil))
}

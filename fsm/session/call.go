package session

import (
	"errors"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A call is kept until it is over and its engine has received everything about it. Its states are:
//
//   - waiting: it is to end a holding that other calls still use; not begun
//   - begun: the driver carries it out
//   - answered: it has an answer; if held, its memory is still in use, and OnMemoryReturned follows
//   - over: answered, and its memory is not in use or is back
type call struct {
	id             uint64
	op             protocol.CallOp
	holdings       [2]uint64 // the holdings that the call uses
	holdingToEnd   uint64    // the holding that the call is to end
	timeoutNS      uint64    // deadline budget of a waiting call, in nanoseconds
	cost           int       // see CallCost, in bytes
	started        bool
	answer         []byte
	answeredHeld   bool   // the answer says that the memory of the call was still in use (held)
	memoryReturned bool   // OnMemoryReturned was called
	abandoned      bool   // the engine does not wait for the call any more
	showMessage    []byte // the chunks that were shown to the engine and that it has not read yet, as a message
	firstShown     uint32 // the first chunk in showMessage
}

// keyCost is what a key occupies beside its own bytes while its call is carried out: in the decoded message, in the
// node's tables and in the answer.
const keyCost = 1 << 9

// CallCost returns the approximate memory that a call occupies at the agent while it is carried out, in bytes. The cost
// counts the lists, because the engine chooses their length. A call without lists costs nothing, because the window
// bounds the number of calls.
func CallCost(b *protocol.EngineCall) (n int) {
	for _, keys := range [][][]byte{b.Keys, b.Producers} {
		for _, k := range keys {
			n += keyCost + len(k)
		}
	}
	for _, blocks := range b.Blocks {
		n += keyCost + 8*len(blocks)
	}
	return n
}

// isOver reports whether the call has an answer and its memory is back.
func (c *call) isOver() bool { return c.answer != nil && (!c.answeredHeld || c.memoryReturned) }

// findCall returns the session's call with the number, or nil.
func (s *session) findCall(id uint64) *call {
	i, ok := slices.BinarySearchFunc(s.calls, id, func(c *call, id uint64) int { return compareIDs(c.id, id) })
	if !ok {
		return nil
	}
	return s.calls[i]
}

// HandleMessage handles a message of an engine that is attached.
func (m *Machine) HandleMessage(from Conn, body []byte, out *Effects) {
	s := m.sessionByConn(from)
	if s == nil {
		return // The message arrived before its connection was closed.
	}
	if protocol.MayHaveTag(body, protocol.TagEngineShown, &m.cfg.Wire) {
		m.handleShown(s, body, out)
		return
	}
	b := &m.engineCall
	if err := b.Decode(body, &m.cfg.Wire); err != nil {
		m.handleUndecodable(s, b.ID, err, out)
		return
	}
	for _, id := range b.Done {
		if c := s.findCall(id); c != nil {
			m.abandonCall(s, c, out)
		}
	}
	if b.ID <= s.lastCall {
		m.handleRepeat(s, b.ID, out)
		return
	}
	if uint64(len(s.calls)) >= uint64(m.cfg.Response.Window) {
		m.closeConn(s, "call "+formatDecimal(b.ID)+" is beyond the window of "+formatDecimal(uint64(m.cfg.Response.Window))+
			"; say which calls are done before", out)
		return
	}
	s.lastCall = b.ID
	m.admitCall(s, b, out)
}

// handleUndecodable handles a call that could not be decoded. Where its number could be read, the call is answered with
// the reason, so that an engine that sent a message too long for the agent can go on without that call. Otherwise the
// connection is closed.
func (m *Machine) handleUndecodable(s *session, id uint64, err error, out *Effects) {
	var why *protocol.DecodeError
	if id <= s.lastCall || uint64(len(s.calls)) >= uint64(m.cfg.Response.Window) || !errors.As(err, &why) {
		m.closeConn(s, err.Error(), out)
		return
	}
	s.lastCall = id
	m.refuseCall(s, id, effects.Malformed, why.Field, why.Found, why.Want, "send what the agent takes", out)
}

// handleRepeat handles a call that the engine sent again after its connection was cut. The answer, if there is one, is
// sent again.
func (m *Machine) handleRepeat(s *session, id uint64, out *Effects) {
	switch c := s.findCall(id); {
	case c == nil:
		m.closeConn(s, "call "+formatDecimal(id)+" came before, or is below one that did: numbers ascend", out)
	case c.answer != nil:
		m.sendMessage(s, c.answer, out)
	}
}

// admitCall begins a new call, or refuses it.
func (m *Machine) admitCall(s *session, b *protocol.EngineCall, out *Effects) {
	op := protocol.ParseCallOp(b.Op)
	if op == protocol.CallUnknown {
		m.refuseCall(s, b.ID, effects.Unsupported, "op", string(b.Op), "one that this agent knows",
			"use the package of the agent's version", out)
		return
	}
	if field := b.UnexpectedField(); field != "" {
		m.refuseCall(s, b.ID, effects.Invalid, field, "given", "not with "+op.String(), "leave it out", out)
		return
	}
	switch {
	case touchesBlocks(op) && !s.adoptsPool && m.adoptedElsewhere(s):
		m.refuseCall(s, b.ID, effects.Refused, "op", op.String(), "none on blocks that another engine has as its own memory",
			"attach to an agent of this engine's own", out)
	case s.leaving:
		m.refuseCall(s, b.ID, effects.Closed, "op", op.String(), "none after detach", "attach again", out)
	case op == protocol.CallDetach:
		s.detachCall = b.ID
		s.calls = append(s.calls, &call{id: b.ID, op: op, started: true})
		m.beginLeaving(s, out)
	case op == protocol.CallAbort:
		m.abortCall(s, b, out)
	default:
		m.startCall(s, op, b, out)
	}
}

// startCall has the driver carry a call out, if the engine holds what the call names and the bounds allow it. A call
// that ends a holding in use waits for the holding.
func (m *Machine) startCall(s *session, op protocol.CallOp, b *protocol.EngineCall, out *Effects) {
	p := holdingRules[op]
	c := &call{id: b.ID, op: op, timeoutNS: b.PatienceNS, cost: CallCost(b)}
	if p.target != NoHolding && (!p.targetOptional || b.Target != 0) {
		if !m.useHolding(s, c, 0, "target", b.Target, p.target, out) {
			return
		}
	}
	if p.needsPrefill && !m.useHolding(s, c, 1, "prefill", b.Prefill, Prefill, out) {
		return
	}
	if p.creates != NoHolding && s.countHoldings() >= m.cfg.HoldingsMax {
		m.refuseCall(s, b.ID, effects.TooMany, "holdings", formatDecimal(uint64(s.countHoldings())),
			"at most "+formatDecimal(uint64(m.cfg.HoldingsMax)), "give something back, or raise --holdings", out)
		return
	}
	if openCost := s.openCallCost(); c.cost > 0 && openCost > 0 && openCost+c.cost > m.cfg.CallBytesMax {
		m.refuseCall(s, b.ID, effects.TooMany, "bytes of open calls", formatDecimal(uint64(openCost+c.cost))+" with this one",
			"at most "+formatDecimal(uint64(m.cfg.CallBytesMax)), "wait for calls that are open, name fewer keys in one, or raise "+
				"--call-bytes", out)
		return
	}
	s.calls = append(s.calls, c)
	if p.endsHolding {
		c.holdingToEnd, c.holdings = max(c.holdings[0], c.holdings[1]), [2]uint64{}
		h := s.findHolding(c.holdingToEnd)
		h.endingCall = c.id
		if h.users > 0 {
			return
		}
	}
	for _, id := range c.holdings {
		if id != 0 {
			s.findHolding(id).users++
		}
	}
	c.started = true
	out.Begins = append(out.Begins, Begin{CallRef{s.id, c.id}, op, b})
}

// useHolding records that the call uses a holding of its engine. If the engine does not hold that number, or another
// call is about to end the holding, useHolding refuses the call and returns false.
func (m *Machine) useHolding(s *session, c *call, index int, field string, id uint64, kind HoldingKind, out *Effects) bool {
	h := s.findHolding(id)
	if h != nil && h.kind == kind && h.endingCall != 0 && !h.freeSent {
		m.refuseCall(s, c.id, effects.TooMany, field, formatDecimal(id), "not being ended already",
			"wait for the call that ends it, or abort that", out)
		return false
	}
	if h == nil || h.kind != kind || h.freeSent {
		m.refuseCall(s, c.id, effects.NotFound, field, formatDecimal(id), "the number of "+kind.String()+" that this engine holds",
			"what was held in another session, or was given back, is not held any more", out)
		return false
	}
	c.holdings[index] = id
	return true
}

// countHoldings returns the number of the session's holdings, including those that calls without an answer may create.
func (s *session) countHoldings() int {
	n := len(s.holdings)
	for _, c := range s.calls {
		if c.answer == nil && c.op < protocol.CallOp(len(holdingRules)) && holdingRules[c.op].creates != NoHolding {
			n++
		}
	}
	return n
}

// openCallCost returns the total cost of the session's calls that have no answer yet.
func (s *session) openCallCost() (n int) {
	for _, c := range s.calls {
		if c.answer == nil {
			n += c.cost
		}
	}
	return n
}

// startWaitingCall has the driver carry out a call that waited for its holding.
func (m *Machine) startWaitingCall(s *session, c *call, out *Effects) {
	c.started = true
	b := &protocol.EngineCall{ID: c.id, Target: c.holdingToEnd, PatienceNS: c.timeoutNS} // Not m.engineCall: one step may begin two calls.
	if holdingRules[c.op].needsPrefill {
		b.Target, b.Prefill = 0, c.holdingToEnd
	}
	out.Begins = append(out.Begins, Begin{CallRef{s.id, c.id}, c.op, b})
}

// refuseCall answers a call that is not begun. The answer is kept like any other, except in a leaving session: no
// engine can resume such a session, and the session must not wait for the engine's confirmation.
func (m *Machine) refuseCall(s *session, id uint64, code effects.Code, field, theirs, ours, remedy string, out *Effects) {
	m.engineAnswer = protocol.EngineAnswer{ID: id, Code: uint32(code), Field: []byte(field), Theirs: []byte(theirs),
		Ours: []byte(ours), Remedy: []byte(remedy)}
	c := &call{id: id, started: true, answer: m.engineAnswer.Append(nil)}
	if !s.leaving {
		s.calls = append(s.calls, c)
	}
	m.sendMessage(s, c.answer, out)
}

// abortCall ends another call of the same engine early. The result of the aborted call is reported in that call's own
// answer.
func (m *Machine) abortCall(s *session, b *protocol.EngineCall, out *Effects) {
	c := s.findCall(b.Target)
	if c == nil || c.answer != nil {
		m.refuseCall(s, b.ID, effects.NotFound, "target", formatDecimal(b.Target), "a call without an answer",
			"nothing is to be done: it has ended", out)
		return
	}
	if c.started {
		if c.op != protocol.CallDetach {
			out.Aborts = append(out.Aborts, CallRef{s.id, c.id})
		}
	} else {
		m.cancelWait(s, c, out)
		m.engineAnswer = protocol.EngineAnswer{ID: c.id, Code: uint32(effects.Cancelled)}
		c.started, c.answer = true, m.engineAnswer.Append(nil)
		m.sendMessage(s, c.answer, out)
	}
	m.refuseCall(s, b.ID, effects.OK, "", "", "", "", out)
}

// cancelWait takes back a call that waits to end its holding.
func (m *Machine) cancelWait(s *session, c *call, out *Effects) {
	h := s.findHolding(c.holdingToEnd)
	h.endingCall, c.holdingToEnd = 0, 0
	m.endIfUnused(s, h, out)
}

// OnCallEnded completes a Begin. newHolding says that the call created a holding; stands says that the holding that the
// call was to end is still held. The machine copies the answer before OnCallEnded returns.
func (m *Machine) OnCallEnded(ref CallRef, a *protocol.EngineAnswer, newHolding, stands bool, out *Effects) {
	s := m.findSession(ref.Session)
	c := s.findCall(ref.ID)
	c.answer, c.answeredHeld, c.showMessage = a.Append(nil), a.Held, nil
	if newHolding {
		h := &holding{id: c.id, kind: holdingRules[c.op].creates, orphaned: c.abandoned}
		if h.kind == Share {
			h.pagesOf = c.holdings[0]
			s.findHolding(h.pagesOf).users++
		}
		s.addHolding(h)
	}
	if c.holdingToEnd != 0 {
		if h := s.findHolding(c.holdingToEnd); stands {
			h.endingCall = 0
		} else {
			m.removeHolding(s, h, out)
		}
	}
	if !c.abandoned {
		m.sendMessage(s, c.answer, out)
	} else if c.answeredHeld {
		out.Aborts = append(out.Aborts, ref) // The earlier abort came before there was anything to take back.
	}
	m.finishIfOver(s, c, out)
	if h := s.findHolding(c.id); h != nil {
		m.endIfUnused(s, h, out)
	}
	if h := s.findHolding(c.holdingToEnd); h != nil {
		m.endIfUnused(s, h, out)
	}
	m.finishLeaving(s, out)
}

// OnMemoryReturned reports that nothing touches the memory of a call with a held answer any more.
func (m *Machine) OnMemoryReturned(ref CallRef, out *Effects) {
	s := m.findSession(ref.Session)
	c := s.findCall(ref.ID)
	c.memoryReturned = true
	if !c.abandoned {
		m.sendReturned(s, c, out)
	}
	m.finishIfOver(s, c, out)
	m.finishLeaving(s, out)
}

// finishIfOver releases the holdings that a call uses once the call is over. A call for which the engine does not wait
// is removed.
func (m *Machine) finishIfOver(s *session, c *call, out *Effects) {
	if !c.isOver() {
		return
	}
	for i, id := range c.holdings {
		c.holdings[i] = 0
		m.releaseUse(s, id, out)
	}
	if c.abandoned {
		m.removeCall(s, c, out)
	}
}

// abandonCall records that the engine does not wait for a call any more. A call that is over or not begun is removed. A
// call without an answer is aborted; in a leaving session a call with a held answer is aborted too.
func (m *Machine) abandonCall(s *session, c *call, out *Effects) {
	c.abandoned = true
	switch {
	case c.isOver():
		m.removeCall(s, c, out)
	case !c.started:
		m.removeCall(s, c, out)
		m.cancelWait(s, c, out)
	case (c.answer == nil || s.leaving) && c.op != protocol.CallDetach:
		out.Aborts = append(out.Aborts, CallRef{s.id, c.id})
	}
}

// removeCall removes the record of a call.
func (m *Machine) removeCall(s *session, c *call, out *Effects) {
	out.Drops = append(out.Drops, Drop{CallRef{s.id, c.id}, s.leaving})
	s.calls = slices.DeleteFunc(s.calls, func(x *call) bool { return x == c })
}

// ShowChunks lends chunks of a fetch to the engine of the call: one page for each chunk, with the number of valid bytes
// of each in lengths. A ShowResult completes the ShowChunks, unless the call ends first.
func (m *Machine) ShowChunks(ref CallRef, first int, pages, lengths []uint64, out *Effects) {
	s := m.findSession(ref.Session)
	c := s.findCall(ref.ID)
	if c.abandoned {
		out.ShowResults = append(out.ShowResults, ShowResult{ref, effects.Cancelled})
		return
	}
	c.firstShown = uint32(first)
	c.showMessage = (&protocol.EngineShow{ID: c.id, First: c.firstShown, Pages: pages, Lengths: lengths}).Append(nil)
	m.sendMessage(s, c.showMessage, out)
}

// handleShown handles the engine's reply to a ShowChunks.
func (m *Machine) handleShown(s *session, body []byte, out *Effects) {
	x := &m.engineShown
	if err := x.Decode(body, &m.cfg.Wire); err != nil {
		m.closeConn(s, err.Error(), out)
		return
	}
	c := s.findCall(x.ID)
	if c == nil || c.showMessage == nil || c.firstShown != x.First {
		return // The chunks were shown again after a cut and read twice; or the call has ended.
	}
	c.showMessage = nil
	code := effects.OK
	if x.Code != 0 {
		code = effects.Faulted
	}
	out.ShowResults = append(out.ShowResults, ShowResult{CallRef{s.id, c.id}, code})
}
